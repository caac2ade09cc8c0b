"""What architectures are made of: shells, configs, heads, initialization."""

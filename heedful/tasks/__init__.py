"""Tasks: what a model is trained for. Each says how a batch is made, what the loss is, and what to show."""

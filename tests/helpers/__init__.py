"""What tests share: tiny models, generated cases, small runs."""

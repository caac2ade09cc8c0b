"""How one step is spread over many processes, on torch's own engine."""

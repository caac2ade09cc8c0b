"""Training: loss, schedule, optimizer, loop, checkpoints."""

"""Training: loss, schedule, optimiser, loop, checkpoints."""

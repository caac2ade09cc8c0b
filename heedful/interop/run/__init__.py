"""Runs of heedful's own, read back."""

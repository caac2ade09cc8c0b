"""Alignment: supervised tuning, preferences and rewards on the built-in instructions, side by side."""

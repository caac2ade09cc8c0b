"""Runs: a recipe done in a folder, from the first step to the last, however often it is interrupted."""

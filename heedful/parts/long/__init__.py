"""Attention for long texts: segment recurrence, sparse, compressed and linear attention, windowed caches."""

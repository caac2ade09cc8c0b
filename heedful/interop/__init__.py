"""Other libraries' formats: a folder each, and the proof that a model stays the same model."""

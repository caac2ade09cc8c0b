"""Data: files read in constant memory, tokenizers, tokenized corpora on disk, the examples of each step."""

"""Data: files read in constant memory, tokenizers, tokenized corpora on disk, and which examples make up a step."""

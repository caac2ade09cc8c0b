"""How Hugging Face names the weights of each architecture."""

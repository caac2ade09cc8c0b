"""Hugging Face folders: weights, configs, tokenizers, chat templates."""

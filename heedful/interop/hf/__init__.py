"""Hugging Face folders, in and out: weights, configs, tokenizers, chat templates."""

"""Adapters of Hugging Face's PEFT, in and out."""

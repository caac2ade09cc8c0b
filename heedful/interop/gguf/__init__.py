"""GGUF, the format of llama.cpp, in and out."""

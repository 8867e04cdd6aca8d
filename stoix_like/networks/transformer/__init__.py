"""Decoders of the Llama and Qwen2 family, with a cache of keys and values."""

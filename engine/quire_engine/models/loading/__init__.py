"""Readers of model files: GGUF, and Hugging Face folders with safetensors."""

"""Text to token ids and back: tokenizers, chat templates, incremental decoding, stop strings.

Nothing here imports torch. `tokenizing.loading.load_tokenizer` is where to begin.
"""

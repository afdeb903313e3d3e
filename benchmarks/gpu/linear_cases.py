"""Linear layers of the two anchor models, by (num_out, num_in)."""

from __future__ import annotations

SHAPES = {
    "llama3-8b": {
        "qkv": (6144, 4096),
        "o": (4096, 4096),
        "gate_up": (28672, 4096),
        "down": (4096, 14336),
        "lm_head": (128256, 4096),
    },
    "qwen3-0.6b": {
        "qkv": (4096, 1024),
        "o": (1024, 2048),
        "gate_up": (6144, 1024),
        "down": (1024, 3072),
        "lm_head": (151936, 1024),
    },
}
ROWS = (1, 2, 4, 8, 16, 32, 64)

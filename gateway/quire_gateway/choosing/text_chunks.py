"""Names of a prompt's parts.

A gateway has no tokenizer. It cuts the prompt's text into equal pieces and names each by a hash of
all text up to its end, so that equal names mean equal prefixes. Engines take the pieces to be
spread evenly over the prompt's tokens (`quire_engine.core.prefix_chunks`), so there is a limit to
their number, and longer texts have larger pieces.
"""

from collections.abc import Iterable
from hashlib import blake2b

CHUNK_BYTES = 1024
"""About 250 tokens: what is shared is found to that."""
MAX_CHUNKS = 64
"""Longer texts have pieces twice as large, and so on: a header of names stays below 1.1 KB."""


def name_chunks(parts: Iterable[bytes], salt: str = "") -> tuple[int, ...]:
    """Name the pieces of a prompt that consists of these parts, in order.

    Parameters
    ----------
    salt
        Prompts share names, as they share cached blocks, only with equal salts.

    Returns
    -------
    64-bit numbers; the last stands for a piece that may be shorter. Empty for an empty prompt.
    """
    text = b"".join(parts)
    size = CHUNK_BYTES
    while len(text) > size * MAX_CHUNKS:
        size *= 2
    names, state = [], salt.encode()
    for start in range(0, len(text), size):
        state = blake2b(state + text[start : start + size], digest_size=8).digest()
        names.append(int.from_bytes(state))
    return tuple(names)


def write_names(names: Iterable[int]) -> bytes:
    """Write names as the header `x-quire-prefix` has them."""
    return ",".join([f"{name:016x}" for name in names]).encode()


def read_name(text: str) -> int | None:
    """Read a name of ours in an engine's event; None for names of somebody else."""
    if len(text) != 16:
        return None
    try:
        return int(text, 16)
    except ValueError:
        return None

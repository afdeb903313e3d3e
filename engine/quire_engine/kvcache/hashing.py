"""Names for prefixes: a hash chain over blocks of tokens.

    root(extras) ──► block 0 ──► block 1 ──► ...      each hash covers its parent's

Extras (the adapter, a tenant's cache salt) are tagged and enter at the root, so that two tenants
never share a block. The key is random per process: nobody outside can craft a collision.
"""

import hashlib
from array import array
from collections.abc import Mapping, Sequence

import msgspec

from quire_engine.kvcache.block import BlockHash

DIGEST_BYTES = 16
TOKEN_BYTES = 4


def pack_tokens(token_ids: Sequence[int]) -> bytes:
    """Pack token ids into bytes, four each."""
    return array("I", token_ids).tobytes()


class BlockHasher:
    """Hashes with one process's secret.

    Parameters
    ----------
    secret
        At most 64 bytes, drawn at random once per process.
    """

    def __init__(self, secret: bytes) -> None:
        self._keyed = hashlib.blake2b(digest_size=DIGEST_BYTES, key=secret)
        """Has taken the secret in: a copy costs half of what a new one does."""

    def root(self, extras: Mapping[str, str]) -> BlockHash:
        """Hash what must be equal before two sequences may share: names and their values."""
        tagged = msgspec.json.encode(sorted(extras.items()))
        return self._digest(b"root" + tagged)

    def child(self, parent: BlockHash, content: bytes) -> BlockHash:
        """Hash one full block of packed tokens after `parent`."""
        return self._digest(parent + content)

    def _digest(self, data: bytes) -> BlockHash:
        keyed = self._keyed.copy()
        keyed.update(data)
        return BlockHash(keyed.digest())

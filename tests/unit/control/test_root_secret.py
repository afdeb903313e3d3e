"""The root of internal tokens: the operator reads it as gateways do, from a file."""

import base64
import string
from typing import Any, cast

import pytest

from quire_operator.cluster.api import ClusterApi
from quire_operator.errors import SettingsError
from quire_operator.root_secret import load_or_make


class Secrets:
    """Keeps one Secret, as the API server does."""

    def __init__(self, root: bytes | None = None) -> None:
        self.body = None if root is None else {"data": {"root": base64.b64encode(root).decode()}}

    async def get(self, *_: object) -> dict[str, Any] | None:
        return self.body

    async def create(self, _kind: object, _namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        self.body = body
        return body

    async def load(self, known: bytes | None = None) -> bytes:
        api = cast("ClusterApi", self)
        return await load_or_make(api, "quire-system", "quire-root", known=known)


async def test_one_that_is_made_is_text_without_blanks_so_that_all_read_the_same() -> None:
    secrets = Secrets()
    root = await secrets.load()

    assert len(root) == 64
    assert set(root.decode()) <= set(string.hexdigits)
    assert await secrets.load() == root


async def test_one_made_by_hand_is_read_without_its_line_break() -> None:
    assert await Secrets(b"a secret made by hand\n").load() == b"a secret made by hand"


async def test_one_that_is_too_short_says_what_to_do() -> None:
    with pytest.raises(SettingsError, match="quire-system/quire-root has no key root"):
        await Secrets(b"short          \n").load()


async def test_one_that_was_deleted_becomes_what_it_was() -> None:
    secrets = Secrets()
    root = await secrets.load()
    secrets.body = None

    assert await secrets.load(known=root) == root
    assert await Secrets(b"another secret by hand").load(known=root) == b"another secret by hand"

"""From a Secret's entries to the keys that gateways are told: each by its SHA-256, never itself.

An entry's name is the key's name. Its value is the key, or an object in JSON:

    {"key": "...", "max_priority": "background", "requests_per_minute": 600,
     "tokens_per_minute": 200000, "models": ["chat"], "salt": "team-a"}

with "sha256" in place of "key" where nobody but its owner is to know it. The fields are those of
the gateway's routing document. A bad entry is left out and named; the others count. No message
here has anything of a value.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

MIN_KEY_LENGTH = 16
"""Of a key in characters: gateways are told hashes in a ConfigMap, and a short key can be guessed
from its hash."""
_MAX_KEY_LENGTH = 4096
MAX_DOCUMENT_BYTES = 900_000
"""Of all keys in a routing document, which is an object of at most 1 MiB."""

_SENDABLE = re.compile(r"[\x21-\x7e]+")
_FIELD = re.compile(r"\$\.([a-z0-9_]+)")
_PerMinute = Annotated[int, Meta(ge=1, le=1_000_000_000)]
_ServedName = Annotated[str, Meta(min_length=1, max_length=128)]


class RoutedKey(msgspec.Struct, frozen=True, kw_only=True):
    """One key as gateways are told of it."""

    name: str
    """In metrics and logs."""
    sha256: str
    models: tuple[str, ...] = ()
    """Names of models that it may use; none: all of the service."""
    max_priority: str = "interactive"
    """With "background", all that comes with it is background work."""
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    salt: str = ""
    """Keys share cached prefixes only with equal salts."""


@dataclass(frozen=True, kw_only=True)
class ApiKeys:
    """What a Secret says."""

    keys: tuple[RoutedKey, ...] = ()
    """By name."""
    problems: tuple[str, ...] = ()
    """A sentence for each entry that is left out: its name, and what to do."""


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    key: Annotated[str, Meta(max_length=_MAX_KEY_LENGTH)] | None = None
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | None = None
    models: Annotated[tuple[_ServedName, ...], Meta(max_length=64)] = ()
    max_priority: Literal["interactive", "background"] = "interactive"
    requests_per_minute: _PerMinute | None = None
    tokens_per_minute: _PerMinute | None = None
    salt: Annotated[str, Meta(max_length=128)] = ""


_WANTED = {
    "key": "text",
    "sha256": "64 hexadecimal digits in small letters",
    "models": "a list of at most 64 names",
    "max_priority": '"interactive" or "background"',
    "requests_per_minute": "a whole number from 1 on",
    "tokens_per_minute": "a whole number from 1 on",
    "salt": "text of at most 128 characters",
}


class _BadEntryError(Exception):
    """What is wrong with an entry, without its value."""


def read_keys(data: Mapping[str, str]) -> ApiKeys:
    """Read a Secret's data, in base64 as the API server has it."""
    keys: dict[str, RoutedKey] = {}
    problems: list[str] = []
    left = MAX_DOCUMENT_BYTES
    for name, value in sorted(data.items()):
        try:
            key = _read(name, value)
        except _BadEntryError as error:
            problems.append(f"{name} {error}")
            continue
        size = len(msgspec.json.encode(key)) + 2
        if other := keys.get(key.sha256):
            problems.append(f"{name} has the same key as {other.name}: remove one of them")
        elif size > left:
            problems.append(f"{name} has no room in the routing document: use fewer keys")
        else:
            left -= size
            keys[key.sha256] = key
    return ApiKeys(keys=tuple(keys.values()), problems=tuple(problems))


def keys_of_document(text: str, secret: str) -> tuple[RoutedKey, ...]:
    """Read a Secret's keys from the routing document that told of them; none if it did not."""
    try:
        written = msgspec.json.decode(text, type=_Written)
    except (msgspec.MsgspecError, UnicodeError):
        return ()
    return written.api_keys if written.api_keys_secret == secret else ()


class _Written(msgspec.Struct, frozen=True):
    api_keys_secret: str | None = None
    api_keys: tuple[RoutedKey, ...] = ()


def _read(name: str, value: str) -> RoutedKey:
    text = _text(value)
    if text[:1] in ("[", '"'):
        raise _BadEntryError("is JSON, but no object: write the key alone, or an object")
    if not text.startswith("{"):
        return RoutedKey(name=name, sha256=_digest(text))
    entry = _entry(text)
    if (entry.key is None) == (entry.sha256 is None):
        raise _BadEntryError('needs either "key" or "sha256"')
    return RoutedKey(
        name=name,
        sha256=entry.sha256 or _digest(entry.key or ""),
        models=entry.models,
        max_priority=entry.max_priority,
        requests_per_minute=entry.requests_per_minute,
        tokens_per_minute=entry.tokens_per_minute,
        salt=entry.salt,
    )


def _text(value: str) -> str:
    """Without the line's end that a file brings."""
    try:
        return base64.b64decode(value, validate=True).decode().strip()
    except (binascii.Error, ValueError):
        raise _BadEntryError("is no text: write the key, or an object in JSON") from None


def _entry(text: str) -> _Entry:
    try:
        return msgspec.json.decode(text, type=_Entry)
    except msgspec.ValidationError as error:
        field = _FIELD.search(str(error))  # the rest of the message may have what was written
        if field is None or field[1] not in _WANTED:
            known = ", ".join(_WANTED)
            raise _BadEntryError(f"is no object of these fields alone: {known}") from None
        raise _BadEntryError(f'has a "{field[1]}" that is not {_WANTED[field[1]]}') from None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise _BadEntryError("begins with { and is not valid JSON") from None


def _digest(key: str) -> str:
    if not _SENDABLE.fullmatch(key):
        raise _BadEntryError(
            "has a key that no client can send: use letters, digits and punctuation without spaces"
        )
    if len(key) < MIN_KEY_LENGTH:
        raise _BadEntryError(
            f"has a key of less than {MIN_KEY_LENGTH} characters: use a longer one"
        )
    if len(key) > _MAX_KEY_LENGTH:
        raise _BadEntryError(
            f"has a key of more than {_MAX_KEY_LENGTH} characters: use a shorter one"
        )
    return hashlib.sha256(key.encode()).hexdigest()

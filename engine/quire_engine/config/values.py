"""Checks one value against its setting, and says in words what the setting accepts."""

import math
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Annotated, Literal, TypeVar, cast, get_args, get_origin

import msgspec

from quire_engine.config.fields import Setting
from quire_engine.config.kinds import OneOf, Secret, Several
from quire_engine.errors import ConfigError

Kind = TypeVar("Kind")

_NOUNS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
_BOUNDS = {"ge": "at least", "gt": "greater than", "le": "at most", "lt": "less than"}
_SPELLINGS = {"yes": True, "on": True, "no": False, "off": False}
_SHORTENED = re.compile(r"(\d+(?:\.\d+)?)(?:([kmg])|([KMG]))")
_POWERS = {"k": 1, "m": 2, "g": 3}


def read_text(setting: Setting, text: str, origin: str) -> object:
    """The value of a setting given as text: a flag or an environment variable.

    Raises
    ------
    ConfigError
        The text is not what the setting accepts; the message names `origin`.
    """
    value: object = text.strip()
    if setting.is_switch:
        value = _SPELLINGS.get(text.lower(), text)
    elif noun_type(setting) is int:
        value = _written_out(text.strip())
    return _convert(setting, value, origin, is_text=True)


def _written_out(text: str) -> str:
    """A whole number in full: 8k is 8000 and 8K is 8192, as vLLM has it; others as they are."""
    found = _SHORTENED.fullmatch(text)
    if found is None:
        return text
    number, decimal, binary = found.groups()
    power = _POWERS[(decimal or binary).lower()]
    value = float(number) * (1000 if decimal else 1024) ** power
    return str(int(value)) if value.is_integer() else text


def is_several(setting: Setting) -> bool:
    """Whether a setting's text may stand for several."""
    return _metadata(setting, Several) is not None


def is_secret(setting: Setting) -> bool:
    """Whether a setting's value is never to be shown."""
    return _metadata(setting, Secret) is not None


def read_json(setting: Setting, value: object, origin: str) -> object:
    """The value of a setting given in a configuration file; null is "not set".

    Raises
    ------
    ConfigError
        The value's type or range is not what the setting accepts.
    """
    if value is None and setting.is_optional:
        return None
    if isinstance(value, list) and is_several(setting) and all(isinstance(v, str) for v in value):
        value = joined(value, origin)
    return _convert(setting, value, origin, is_text=False)


def joined(texts: Iterable[str], origin: str) -> str:
    """Several texts as the one that a setting of several is.

    Raises
    ------
    ConfigError
        One of them has a comma, and would become two.
    """
    texts = list(texts)
    if any("," in text for text in texts) and len(texts) > 1:
        raise ConfigError(f"{origin}: one of several values has a comma, which stands between them")
    return ",".join(texts)


def split(text: str | None) -> tuple[str, ...]:
    """The several texts that a setting stands for, without empty ones."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _convert(setting: Setting, value: object, origin: str, *, is_text: bool) -> object:
    try:
        found = msgspec.convert(value, setting.accepts, strict=not is_text)
    except msgspec.ValidationError:
        found = None
    if found is None or not _is_allowed(setting, found):
        what = "not that" if is_secret(setting) else shown(value)
        raise ConfigError(f"{origin} is {what}, but accepts {accepted(setting)}")
    return found


def _is_allowed(setting: Setting, value: object) -> bool:
    if isinstance(value, float) and not math.isfinite(value):
        return False
    choice = _metadata(setting, OneOf)
    return choice is None or value in choice.numbers


def _metadata(setting: Setting, kind: type[Kind]) -> Kind | None:
    parts = get_args(setting.accepts)[1:] if get_origin(setting.accepts) is Annotated else ()
    return next((part for part in parts if isinstance(part, kind)), None)


def shown(value: object) -> str:
    """A value as people write it, shortened, and never an empty place in a sentence."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if not text.strip():
        return "empty"
    text = text if len(text) <= 80 else text[:77] + "..."
    return f'"{text}"' if isinstance(value, str) else text


def choices(setting: Setting) -> tuple[str, ...]:
    """The few values that a setting accepts, or nothing if there are many."""
    if get_origin(setting.accepts) is Literal:
        return tuple(map(str, get_args(setting.accepts)))
    choice = _metadata(setting, OneOf)
    return tuple(map(str, choice.numbers)) if choice else ()


def accepted(setting: Setting) -> str:
    """What a setting accepts, to follow "accepts" in a sentence."""
    if few := choices(setting):
        return "one of " + ", ".join(few)
    meta = _metadata(setting, msgspec.Meta)
    noun = _NOUNS[noun_type(setting)]
    if meta is None:
        return noun
    if meta.description is not None:
        return meta.description
    if is_several(setting):
        return "text; several with commas between"
    if meta.min_length is not None:
        return f"{noun} that is not empty"
    bounds = [(words, getattr(meta, name)) for name, words in _BOUNDS.items()]
    return noun + ", " + " and ".join(f"{words} {at}" for words, at in bounds if at is not None)


def noun_type(setting: Setting) -> type:
    """The plain type of a setting's value: int, float, str or bool."""
    if get_origin(setting.accepts) is Literal:
        return str
    is_annotated = get_origin(setting.accepts) is Annotated
    plain = get_args(setting.accepts)[0] if is_annotated else setting.accepts
    return cast("type", plain)


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint at the known name that `name` may have been meant to be, or nothing."""
    close = get_close_matches(name, list(known), n=1, cutoff=0.75)
    return f"; did you mean {close[0]}?" if close else ""

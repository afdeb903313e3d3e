"""How a model's makers want it sampled, where a request does not say. Imports no torch.

From `generation_config.json` of a Hugging Face folder, or `general.sampling.*` of a GGUF file.
`do_sample` is not read: whether to sample is the request's temperature's say, as other servers
have it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from quire_engine.errors import ModelError
from quire_engine.models.facts import read_json, read_model_spec
from quire_engine.models.loading.gguf_file import open_gguf
from quire_engine.models.metadata import Facts

Number = TypeVar("Number", int, float)

_HF_FILE = "generation_config.json"


@dataclass(frozen=True, kw_only=True)
class GenerationDefaults:
    """What a model says; None where it says nothing."""

    temperature: float | None = None
    """At least 0."""
    top_p: float | None = None
    """In (0, 1]."""
    top_k: int | None = None
    """At least 1; files say 0 or -1 for all, which is None here."""
    min_p: float | None = None
    """In [0, 1]."""
    repetition_penalty: float | None = None
    """Above 0."""
    eos_token_ids: tuple[int, ...] = ()
    """Tokens that end a generation, all of them; may be empty."""


def first(*values: Number | None) -> Number:
    """Return the first value that is said: the request's, the model's, or the last, the engine's.

    Raises
    ------
    StopIteration
        All are None.
    """
    return next(value for value in values if value is not None)


def read_generation_defaults(path: Path) -> GenerationDefaults:
    """Read a model's defaults.

    Parameters
    ----------
    path
        A GGUF file, or a Hugging Face folder; a folder without the file has no defaults.

    Raises
    ------
    ModelError
        A file is damaged, or a value is none that can be used.
    """
    eos_token_ids = read_model_spec(path).eos_token_ids
    if path.is_dir():
        file = path / _HF_FILE
        values = read_json(file) if file.exists() else {}
        return _read(Facts(values, _HF_FILE), _HF_NAMES, eos_token_ids)
    return _read(Facts(open_gguf(path).metadata, path.name), _GGUF_NAMES, eos_token_ids)


_HF_NAMES = {
    name: name for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
}
_GGUF_NAMES = {
    "temperature": "general.sampling.temp",
    "top_p": "general.sampling.top_p",
    "top_k": "general.sampling.top_k",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}
_RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "temperature": (lambda x: x >= 0, "a number of at least 0"),
    "top_p": (lambda x: 0 < x <= 1, "a number above 0 and up to 1"),
    "top_k": (lambda x: x == int(x) and x >= -1, "a whole number of at least -1"),
    "min_p": (lambda x: 0 <= x <= 1, "a number from 0 to 1"),
    "repetition_penalty": (lambda x: x > 0, "a number above 0"),
}


def _read(
    facts: Facts, names: dict[str, str], eos_token_ids: tuple[int, ...]
) -> GenerationDefaults:
    found = {field: _number(facts, name) for field, name in names.items()}
    for field, value in found.items():
        is_usable, accepted = _RANGES[field]
        if value is not None and not is_usable(value):
            raise _refusal(facts, names[field], accepted)
    top_k = found["top_k"]
    return GenerationDefaults(
        temperature=found["temperature"],
        top_p=found["top_p"],
        top_k=int(top_k) if top_k is not None and top_k > 0 else None,
        min_p=found["min_p"],
        repetition_penalty=found["repetition_penalty"],
        eos_token_ids=eos_token_ids,
    )


def _number(facts: Facts, name: str) -> float | None:
    value = facts.values.get(name)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value):
        raise _refusal(facts, name, "a number")
    return float(value)


def _refusal(facts: Facts, name: str, accepted: str) -> ModelError:
    value = facts.values.get(name)
    return ModelError(f"{facts.origin}: {name} is {value!r}, but must be {accepted}")

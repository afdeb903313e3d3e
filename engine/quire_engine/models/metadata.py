"""Typed reading of what model files say of themselves. Imports no torch."""

import math
from collections.abc import Mapping
from typing import Any

from quire_engine.errors import ModelError

_MAX_LAYERS = 1 << 12
"""More is damage, and listing them one by one would fill the memory."""


class Facts:
    """Typed reading of a model's metadata, with errors that name the place."""

    def __init__(self, values: Mapping[str, Any], origin: str) -> None:
        self.values = values
        self.origin = origin

    def positive_int(self, key: str, default: int | None = None) -> int:
        """Return an integer of at least 1."""
        value = self._get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ModelError(f"{self.origin}: {key} must be a positive integer, not {value!r}")
        return value

    def num_layers(self, key: str) -> int:
        """Return a number of layers, which is safe to count up to."""
        value = self.positive_int(key)
        if value > _MAX_LAYERS:
            raise ModelError(
                f"{self.origin}: {key} of {value} is absurd: at most {_MAX_LAYERS} is supported"
            )
        return value

    def positive_float(self, key: str, default: float | None = None) -> float:
        """Return a finite number greater than 0."""
        value = self._get(key, default)
        if not _is_number(value) or not 0 < value < math.inf:
            raise ModelError(f"{self.origin}: {key} must be a positive number, not {value!r}")
        return float(value)

    def positive_floats(self, key: str, count: int) -> tuple[float, ...]:
        """Return a list of so many finite numbers greater than 0."""
        values = self._get(key, None)
        is_list = isinstance(values, list) and len(values) == count
        if not is_list or not all(_is_number(v) and 0 < v < math.inf for v in values):
            raise ModelError(f"{self.origin}: {key} must be {count} positive numbers")
        return tuple(map(float, values))

    def optional_int(self, key: str) -> int | None:
        """Return an integer of at least 1, or None where there is none."""
        return None if self.values.get(key) is None else self.positive_int(key)

    def optional_float(self, key: str) -> float | None:
        """Return a finite number greater than 0, or None where there is none."""
        return None if self.values.get(key) is None else self.positive_float(key)

    def boolean(self, key: str, *, default: bool) -> bool:
        """Return true or false."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise ModelError(f"{self.origin}: {key} must be true or false, not {value!r}")
        return value

    def section(self, key: str) -> "Facts | None":
        """Return the table under a key, or None where there is none."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise ModelError(f"{self.origin}: {key} must be a table, not {value!r}")
        return Facts(value, f"{self.origin}: {key}")

    def refuse(self, key: str, expected: object, default: object) -> None:
        """Refuse a model whose setting differs from the only one that is supported."""
        value = self.values.get(key, default)
        if value != expected:
            raise ModelError(
                f"{self.origin}: {key} {value!r} is not supported; supported is {expected!r}"
            )

    def token_ids(self, key: str) -> tuple[int, ...]:
        """Return the ids under a key that may hold one id, a list of ids, or nothing."""
        value = self.values.get(key)
        ids = [] if value is None else value if isinstance(value, list) else [value]
        if not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in ids):
            raise ModelError(f"{self.origin}: {key} must be token ids, not {value!r}")
        return tuple(ids)

    def _get(self, key: str, default: object) -> Any:  # noqa: ANN401 - callers check it
        value = self.values.get(key)
        if value is not None:
            return value
        if default is None:
            raise ModelError(f"{self.origin}: {key} is missing")
        return default


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

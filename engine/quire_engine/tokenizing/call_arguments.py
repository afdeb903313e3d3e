"""The arguments of a call as chat templates take them, whichever way they do.

Clients send them as a string of JSON. Most templates want an object, some put the string into
their text, and none says which.
"""

import json
from typing import Any


class CallArguments(dict[str, Any]):
    """An object that is its JSON where a template puts it into a text."""

    def __init__(self, text: str, value: dict[str, Any]) -> None:
        super().__init__(value)
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __add__(self, other: object) -> str:
        return self._text + str(other)

    def __radd__(self, other: object) -> str:
        return str(other) + self._text


def read_arguments(text: object) -> object:
    """Return the object that a string is the JSON of; what is none stays as it is.

    A model may have written broken arguments, or been cut short in them: that is part of the
    conversation then, and no reason to refuse it.
    """
    if not isinstance(text, str):
        return text
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return text
    return CallArguments(text or "{}", value) if isinstance(value, dict) else text

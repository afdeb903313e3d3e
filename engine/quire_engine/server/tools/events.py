"""What an answer's text turns out to be, piece by piece."""

from typing import NamedTuple


class Content(NamedTuple):
    """Text for the reader."""

    text: str


class CallBegin(NamedTuple):
    """A call of a function; arguments that follow are its own."""

    name: str


class CallArguments(NamedTuple):
    """More of the last call's arguments: JSON, to the letter as the model wrote it."""

    text: str


ToolEvent = Content | CallBegin | CallArguments

"""Ends a conversation in the middle of its last message, for the model to go on with it.

A template closes every message. A mark is put at the end of the last one's content, and the text
is cut there, as Hugging Face's `continue_final_message` does it.
"""

from collections.abc import Sequence
from typing import Any

from quire_engine.errors import RequestError

_MARK = "QUIRE_CONTINUES_HERE "
"""Ends in a space, which templates that trim their messages take away."""


def mark_end(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages, whose contents are texts, with the mark at the end of the last one.

    Raises
    ------
    RequestError
        There is nothing to go on with.
    """
    last = messages[-1] if messages else {}
    if not last.get("content"):
        raise RequestError(
            "continue_final_message: the last message has no content to continue",
            parameter="continue_final_message",
        )
    return [*messages[:-1], {**last, "content": last["content"] + _MARK}]


def cut_at_mark(text: str) -> str:
    """Return the text up to the mark; without the space before it where templates trim.

    Raises
    ------
    RequestError
        The template did not write the end of the last message.
    """
    before, mark, after = text.rpartition(_MARK.rstrip())
    if mark:
        return before if after.startswith(" ") else before.rstrip()
    raise RequestError(
        "continue_final_message: the model's chat template leaves out the end of the last message,"
        " which cannot be continued",
        parameter="continue_final_message",
    )

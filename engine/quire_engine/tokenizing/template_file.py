"""A chat template that the user gives in place of the model's own."""

from pathlib import Path

from quire_engine.errors import ModelError

_OF_TEXT = frozenset("{}\n")
"""What a template has, and hardly any file's name."""


def read_template(given: str) -> str:
    """Read the file of this name; without such a file, text with braces is the template itself.

    Raises
    ------
    ModelError
        It is neither, or the file cannot be read.
    """
    path = Path(given).expanduser()
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        if not _OF_TEXT.isdisjoint(given):
            return given
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise ModelError(
            f"the chat template {given} cannot be read: {reason}; give a Jinja file, or the"
            " template itself"
        ) from error

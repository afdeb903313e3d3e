"""Command lines of a shell's blocks, without running them."""

import re
import shlex
from collections.abc import Iterator

from tests.docs.pages import Block

_HERE_DOCUMENT = re.compile(r"<<'?(\w+)'?([^\n]*)\n.*?^\1$", re.DOTALL | re.MULTILINE)
_BETWEEN = {"&&", "||", "|", ";", "&", "do", "then"}
_PROMPT = re.compile(r"^\$ ", re.MULTILINE)


def commands_of(block: Block) -> Iterator[list[str]]:
    """The words of each command, quotes undone; a here-document is left out."""
    text = block.text
    if block.language == "console":
        text = "\n".join(line[2:] for line in text.splitlines() if _PROMPT.match(line))
    text = _HERE_DOCUMENT.sub(r"\2", text).replace("\\\n", " ")
    for line in _lines(text):
        words: list[str] = []
        for word in _split(line):
            if word in _BETWEEN:
                yield from _one(words)
                words = []
            else:
                words.append(word)
        yield from _one(words)


def _lines(text: str) -> Iterator[str]:
    """Lines; one with an open quote goes on in the next."""
    waiting = ""
    for line in text.splitlines():
        waiting = f"{waiting}\n{line}" if waiting else line
        try:
            shlex.split(waiting, comments=True)
        except ValueError:
            continue
        yield waiting
        waiting = ""
    if waiting:
        raise ValueError(f"a quote is not closed: {waiting}")


def _split(line: str) -> list[str]:
    return shlex.split(line, comments=True)


def _one(words: list[str]) -> Iterator[list[str]]:
    """Without variables that are set before it."""
    while words and re.fullmatch(r"\w+=.*", words[0]):
        words = words[1:]
    if words:
        yield words

"""Text that comes in pieces, read character by character as if it were all there.

Readers are generators: they yield where they need more text, and go on when it has come. What they
make of a text can't depend on how it was cut, for they never see the cuts.
"""

import re
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Reading = Generator[None, None, T]
"""Yields when all text is read and more may come; returns what was read."""

_SPACE = re.compile(r"\s*")


class TextSource:
    """The text so far, and how far it was read.

    Until `commit` places in it stay what they are, and `at` may be set back.
    """

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        """Where the next character is."""
        self.is_over = False
        """Whether no text comes any more."""

    def add(self, text: str) -> None:
        """Take more text."""
        self.text += text

    def commit(self) -> None:
        """Forget what was read; places that were noted before mean nothing any more."""
        self.text, self.at = self.text[self.at :], 0

    def has_more(self) -> Reading[bool]:
        """Wait for a character; no if the text is over."""
        while self.at >= len(self.text):
            if self.is_over:
                return False
            yield
        return True

    def peek(self) -> Reading[str]:
        """The next character, which is not read yet; empty at the end."""
        there = yield from self.has_more()
        return self.text[self.at] if there else ""

    def peek_past(self, pattern: re.Pattern[str]) -> Reading[str]:
        """Read what the pattern matches, perhaps nothing; the next character, as `peek` does.

        The pattern repeats one class of characters, so that a cut within its match is harmless.
        """
        while True:
            match = pattern.match(self.text, self.at)
            self.at = match.end() if match else self.at
            if self.at < len(self.text) or self.is_over:
                return (yield from self.peek())
            yield

    def peek_past_space(self) -> Reading[str]:
        """Read white space; the next character."""
        return (yield from self.peek_past(_SPACE))

    def skip(self, literal: str) -> Reading[bool]:
        """Read this text, if it is what comes."""
        while not self.text.startswith(literal, self.at):
            if self.is_over or not literal.startswith(self.text[self.at :]):
                return False
            yield
        self.at += len(literal)
        return True

"""Tells the reasoning of a model from its answer: `<think>...</think>`, however it is cut.

    prompt ends with     ...<think>                 the model goes on inside of its reasoning
                         ...<think></think>         it was told not to reason
                         neither                    qwen3: it may open its reasoning itself
                                                    deepseek_r1: it reasons in any case

Tags are found in text and not by token ids, so that one that is spelled by several tokens counts
as well, and an answer is the same streamed and whole.
"""

from enum import Enum
from typing import Literal

from quire_engine.tokenizing.chat_template import ChatTemplate

OPEN_TAG = "<think>"
CLOSE_TAG = "</think>"
MAX_SPACE_CHARACTERS = 64
"""So much white space may come before the tag that opens a reasoning."""

ReasoningParser = Literal["qwen3", "deepseek_r1"]
_DEEPSEEK_MARK = "<\uff5cAssistant\uff5c>"


class ReasoningStart(Enum):
    """Where an answer begins."""

    INSIDE = "inside"
    """In the reasoning, whose tag may come again or not."""
    OUTSIDE = "outside"
    """Before the reasoning, if the tag that opens it comes first."""


def choose_parser(name: str, template: ChatTemplate | None) -> ReasoningParser | None:
    """Return how a model's reasoning is told from its answers; None if it is not.

    Parameters
    ----------
    name
        As configured: qwen3, deepseek_r1, none, or auto for what the template shows.
    """
    if name == "qwen3":
        return "qwen3"
    if name == "deepseek_r1":
        return "deepseek_r1"
    if name == "none" or template is None or CLOSE_TAG not in template.source:
        return None
    return "deepseek_r1" if _DEEPSEEK_MARK in template.source else "qwen3"


def find_start(
    parser: ReasoningParser, prompt: str, continued: str | None = None
) -> ReasoningStart | None:
    """Return where an answer to this prompt begins; None where no reasoning can come.

    Parameters
    ----------
    continued
        The message that the answer goes on with, with which the prompt ends.
    """
    if continued is not None:
        opened, closed = continued.rfind(OPEN_TAG), continued.rfind(CLOSE_TAG)
        if max(opened, closed) >= 0:
            return ReasoningStart.INSIDE if opened > closed else None
        prompt = prompt.rstrip().removesuffix(continued.strip())
    end = prompt.rstrip()
    if end.endswith(OPEN_TAG):
        return ReasoningStart.INSIDE
    if end.endswith(CLOSE_TAG) or (continued or "").strip():
        return None
    return ReasoningStart.INSIDE if parser == "deepseek_r1" else ReasoningStart.OUTSIDE


class ReasoningSplitter:
    """Cuts one output's text in two at its tags, which are a part of neither.

        text         < t h i n k > W e l l < / t h i n k > 4 2
        reasoning                   W e l l
        answer                                             4 2

    Text that may be the beginning of a tag is held back. Without the tag that closes it all is
    reasoning; a second reasoning is a part of the answer.

    Example
    -------
    >>> splitter = ReasoningSplitter(ReasoningStart.OUTSIDE)
    >>> splitter.push("<think>Well</thi"), splitter.push("nk>42")
    (('Well', ''), ('', '42'))
    """

    def __init__(self, start: ReasoningStart) -> None:
        self._start = start
        self._held = ""
        self._has_begun = False
        """Whether it is known if the text begins with a tag."""
        self._is_inside = start is ReasoningStart.INSIDE
        self._num_tokens = 0
        self._is_counting = True
        self._has_reasoning = self._is_inside

    @property
    def num_tokens(self) -> int:
        """Tokens of the reasoning, tags included, of those that were noted."""
        return self._num_tokens if self._has_reasoning else 0

    def push(self, text: str) -> tuple[str, str]:
        """Take the next piece of text; returns what can be shown of reasoning and answer."""
        if self._has_begun and not self._is_inside:
            return "", text
        self._held += text
        if not self._has_begun and not self._find_begin():
            return "", ""
        if not self._is_inside:
            return "", self._take(len(self._held))
        end = self._held.find(CLOSE_TAG)
        if end < 0:
            return self._take(len(self._held) - _num_begun(self._held)), ""
        reasoning = self._take(end)
        self._is_inside = False
        return reasoning, self._take(len(self._held))[len(CLOSE_TAG) :]

    def note_token(self) -> None:
        """Count a token whose text has just been pushed."""
        if self._is_counting:
            self._num_tokens += 1
            self._is_counting = self._is_inside or not self._has_begun

    def finish(self) -> tuple[str, str]:
        """Return what was held back, as no tag can follow any more."""
        text = self._take(len(self._held))
        return (text, "") if self._is_inside else ("", text)

    def _find_begin(self) -> bool:
        """Look for the tag that opens the reasoning; no while it may still come."""
        text = self._held.lstrip()
        num_spaces = len(self._held) - len(text)
        if num_spaces <= MAX_SPACE_CHARACTERS:
            if text.startswith(OPEN_TAG):
                self._held = text[len(OPEN_TAG) :]
                self._is_inside = self._has_reasoning = True
            elif OPEN_TAG.startswith(text):
                return False
        self._has_begun = True
        return True

    def _take(self, count: int) -> str:
        text, self._held = self._held[:count], self._held[count:]
        return text


def _num_begun(text: str) -> int:
    """Return how many characters at the end may be the beginning of the closing tag."""
    for length in range(min(len(CLOSE_TAG) - 1, len(text)), 0, -1):
        if CLOSE_TAG.startswith(text[-length:]):
            return length
    return 0

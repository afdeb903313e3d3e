"""How far one answer has come in its grammar, and what may come next.

    begin ──► mask (what may come) ──► a token is chosen ──► advance ──► mask ──► ...

The mask of the next token is made as soon as a token is there, so that it is known at once when
nothing can follow: the answer ends then, without a step for an end token. The state outlives the
executor's row: a request that was preempted goes on where it was, and a step that is computed
again, after one that failed, goes back.
"""

from collections.abc import Collection, Sequence
from itertools import takewhile

import numpy as np

from quire_engine.grammar.compiler import (
    CompiledGrammar,
    Mask,
    clear_tokens,
    list_tokens,
    new_mask,
)


class GrammarState:
    """One sequence's place in a grammar; belongs to one thread at a time.

    Parameters
    ----------
    stop_token_ids
        Tokens that end the request: end tokens that are not among them are never permitted.
    """

    def __init__(self, compiled: CompiledGrammar, stop_token_ids: Collection[int]) -> None:
        self._vocabulary = compiled.vocabulary
        self._matcher = compiled.matcher()
        self._accepted: list[int] = []
        self._mask = new_mask(compiled.vocabulary)
        self._last_word = np.uint32(0xFFFFFFFF >> -self._vocabulary.width % 32).astype(np.int32)
        self._muted = [
            token_id
            for token_id in compiled.vocabulary.end_token_ids
            if token_id not in stop_token_ids
        ]
        self.is_finished = False
        """Whether no further token can come."""
        self._fill()

    @property
    def mask(self) -> Mask:
        """What may come next: changes with the state."""
        return self._mask

    def permitted(self) -> list[int]:
        """Return the tokens that may come next."""
        tokens: list[int] = list_tokens(self._mask).tolist()
        return tokens

    def go_to(self, generated: Sequence[int]) -> None:
        """Be where these tokens lead, all that were generated so far; usually it is there."""
        pairs = zip(self._accepted, generated, strict=False)
        self.go_back(sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)))
        for token_id in generated[len(self._accepted) :]:
            self.advance(token_id)

    def go_back(self, count: int) -> None:
        """Be where the first so many tokens led, for a step that is computed again."""
        if count < len(self._accepted):
            self._matcher.rollback(len(self._accepted) - count)
            del self._accepted[count:]
            self._fill()

    def advance(self, token_id: int) -> bool:
        """Take the next token; the answer is no if it is none that may come.

        That happens where no permitted token had a finite score, or where nothing was permitted.
        """
        if self._matcher.is_terminated() or not self._matcher.accept_token(token_id, False):
            return False
        self._accepted.append(token_id)
        self._fill()
        return True

    def _fill(self) -> None:
        if self._matcher.is_terminated():
            self.is_finished = True
            return
        mask = self._mask
        self._matcher.fill_next_token_bitmask(mask[None, :], 0, False)
        mask[-1] &= self._last_word  # its rest stands for no tokens, and need not be clear
        is_complete = self._matcher.is_completed()
        if is_complete:
            self._drop_ends(mask)
        self.is_finished = is_complete and not self._can_go_on(mask)

    def _drop_ends(self, mask: Mask) -> None:
        if self._muted:
            clear_tokens(mask, self._muted)

    def _can_go_on(self, mask: Mask) -> bool:
        """Whether a token beside the end tokens may come."""
        if mask.any():
            rest = mask.copy()
            clear_tokens(rest, self._vocabulary.end_token_ids)
            return bool(rest.any())
        return False

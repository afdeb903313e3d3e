"""Made-up tokens that obey a grammar, for rows that have one.

The letter that would have come is taken if it may come. Else strings, objects and arrays are closed
as soon as they may be, so that an answer ends, and otherwise the first token that may come is it.
"""

from quire_engine.execution.base import Chunks, OutputGrammar
from quire_engine.execution.grammars_by_row import GrammarsByRow

_BLANKS = frozenset(b" \t\n\r")
_CLOSING = b'"}]'


class SimulatedGrammars(GrammarsByRow):
    """Makes up tokens for rows with a grammar."""

    def obey(self, chunks: Chunks, token_ids: list[int]) -> tuple[int, ...]:
        """Replace, in place, the tokens of rows with a grammar by those that may come.

        Returns
        -------
        tuple
            Indices of tokens in whose place none may come.
        """
        if not self.concern(chunks.rows):
            return ()
        impossible = []
        samples = zip(chunks.rows, chunks.starts, chunks.num_tokens, chunks.samples, strict=True)
        places = [(row, start + count) for row, start, count, is_due in samples if is_due]
        for index, (row, position) in enumerate(places):
            found = self._rows.get(row)
            if found is None:
                continue
            grammar, num_prompt_tokens = found
            grammar.go_back(position - num_prompt_tokens)
            chosen = _choose(grammar, token_ids[index])
            if chosen is None or not grammar.advance(chosen):
                impossible.append(index)
                continue
            token_ids[index] = chosen
        return tuple(impossible)


def _choose(grammar: OutputGrammar, wanted: int) -> int | None:
    """Choose a token; None if none may come."""
    import numpy as np  # whoever has a grammar has it; others need not load it

    bits = np.unpackbits(grammar.mask.view(np.uint8), bitorder="little")
    if bits[wanted] and wanted not in _BLANKS:
        return wanted
    for closing in _CLOSING:
        if bits[closing]:
            return closing
    permitted: list[int] = np.flatnonzero(bits).tolist()
    return next((t for t in permitted if t not in _BLANKS), permitted[0] if permitted else None)

"""Which rows have a grammar: of every executor, without torch."""

from collections.abc import Sequence

from quire_engine.execution.base import OutputGrammar, StartedRow


class GrammarsByRow:
    """The grammars of an executor's rows. Rows without one are not kept and cost nothing."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[OutputGrammar, int]] = {}
        """By row: its grammar, and how many tokens its prompt has."""

    def start(self, started: StartedRow) -> None:
        """Take a row's grammar; forgets what the row was before."""
        if started.grammar is None:
            self._rows.pop(started.row, None)
            return
        started.grammar.go_to(started.token_ids[started.num_prompt_tokens :])
        self._rows[started.row] = (started.grammar, started.num_prompt_tokens)

    def concern(self, rows: Sequence[int]) -> bool:
        """Whether any of these rows has a grammar."""
        return bool(self._rows) and not self._rows.keys().isdisjoint(rows)

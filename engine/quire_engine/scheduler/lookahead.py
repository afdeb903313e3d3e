"""Planning a step while the one before it is computed, so without its tokens.

    step k         A: decode      B: decode, its last      C: last chunk of its prompt
    during k       A + unknown    B ends by length         C + unknown
    step k + 1     A: decode      -                        C: decode      D: chunk of its prompt

That a request gets a token is known, and which one is not needed: the executor has it. Requests
that end by length are known, and keep row and blocks until their token is there. Those that a stop
token ends are found a step late: they are in step k + 1, what comes of it is dropped, and until
then nobody else can have been given their row or blocks.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter

from quire_engine.scheduler.plan import Plan

UNKNOWN_TOKEN = -1
"""Stands for a token while a step is planned, and never longer."""


def needs_tokens(computed: Plan) -> bool:
    """Whether the tokens of a step must be known before the next one is planned.

    Rules, grammars, scores and beams look at tokens on the host, so that executors wait for them
    anyway; embeddings come from the host as well.
    """
    return any(map(attrgetter("looks_at_tokens"), computed.requests))


@contextmanager
def expected_tokens(computed: Plan) -> Iterator[None]:
    """Let the requests of a step that go on after it have its tokens, unknown ones."""
    going_on = [r for r in computed.sampling() if len(r.token_ids) + 1 < r.max_length]
    for request in going_on:
        request.token_ids.append(UNKNOWN_TOKEN)
    try:
        yield
    finally:
        for request in going_on:
            request.token_ids.pop()

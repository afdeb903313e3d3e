"""Which searches are taken: those that find as many answers as are wanted."""

import math

import pytest

from quire_engine.errors import RequestError
from quire_engine.protocol.beams import BeamParams
from quire_engine.protocol.messages import ModelFacts
from quire_engine.protocol.sampling import SamplingParams, TokenLogprobs
from quire_engine.scheduler.beam_search import BeamSearch
from quire_engine.server.schemas.completions import CompletionRequest
from quire_engine.server.search_rules import choose_beams

VOCAB_SIZE, STOPS = 6, (1, 4)
FACTS = ModelFacts(max_model_len=100, vocab_size=VOCAB_SIZE, num_blocks=99, block_size=16)


def choose(width: int, max_tokens: int = 1) -> BeamParams:
    request = CompletionRequest(
        model="m", prompt="p", use_beam_search=True, beam_width=width, n=width, min_tokens=1
    )
    sampling = SamplingParams(max_tokens=max_tokens, min_tokens=1, stop_token_ids=STOPS)
    _, beams = choose_beams(
        request,
        sampling,
        num_prompt_tokens=5,
        wanted_tokens=max_tokens,
        facts=FACTS,
        max_num_seqs=64,
    )
    assert beams is not None
    return beams


def test_there_must_be_tokens_to_go_on_with_while_no_stop_token_may_come() -> None:
    with pytest.raises(RequestError, match="5 beams are more than the 4 tokens that do not end"):
        choose(5)


@pytest.mark.parametrize("max_tokens", [1, 2, 5])
def test_the_widest_search_finds_all_its_answers(max_tokens: int) -> None:
    params = choose(4, max_tokens)
    search = BeamSearch(
        params, max_tokens=max_tokens, stop_token_ids=frozenset(STOPS), min_tokens=max_tokens
    )
    logprobs = tuple(-math.log(VOCAB_SIZE) - token / 10 for token in range(VOCAB_SIZE))
    score = TokenLogprobs(logprobs[0], 1, tuple(range(VOCAB_SIZE)), logprobs)
    while not search.is_over:
        search.advance([score] * len(search.beams))

    assert len(search.ended) == 4

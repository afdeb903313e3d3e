"""The simulated executor takes all of sampling's parameters, and makes up scores when asked."""

from dataclasses import replace
from math import log
from typing import Any

from quire_engine.protocol.sampling import SamplingParams
from tests.unit.simulated.builders import batch, build_executor, start

PROMPT = list(b"lighthouse")
EVERYTHING: dict[str, Any] = {
    "temperature": 0.3, "top_p": 0.5, "top_k": 3, "min_p": 0.2, "seed": 5, "min_tokens": 4,
    "presence_penalty": 1.0, "frequency_penalty": 1.0, "repetition_penalty": 1.5,
    "logit_bias": ((1, 5.0),), "allowed_token_ids": (1, 2), "bad_words": ((3, 4),),
    "num_logprobs": 2, "num_prompt_logprobs": 1,
}  # fmt: skip


def test_everything_is_taken_and_scored() -> None:
    executor = build_executor()
    plain = start(0, PROMPT, [1], seed=5)
    wishes = replace(
        start(1, PROMPT, [2]), sampling=SamplingParams(max_tokens=100, **EVERYTHING), seed=5
    )
    first = executor.run(batch((0, 0, 10, True), (1, 0, 6, False), started=[plain, wishes]))
    second = executor.run(batch((0, 10, 1, True), (1, 6, 4, True), num_decodes=1))

    assert first.logprobs == [None]
    assert second.logprobs is not None
    assert second.token_ids[1] == first.token_ids[0], "wishes change no token"
    nothing, score = second.logprobs
    assert nothing is None
    assert score is not None
    assert (score.logprob, score.rank) == (log(0.5), 1)
    assert score.top_ids[0] == second.token_ids[1]
    assert sorted(score.top_logprobs, reverse=True) == list(score.top_logprobs)
    scores = [s for result in (first, second) for s in (result.prompt_logprobs or {})[1]]
    assert [score.top_ids for score in scores] == [(token,) for token in PROMPT[1:]]


def test_nothing_is_scored_unasked() -> None:
    executor = build_executor()
    result = executor.run(batch((0, 0, 10, True), started=[start(0, PROMPT, [1])]))
    assert result.logprobs is None
    assert result.prompt_logprobs is None

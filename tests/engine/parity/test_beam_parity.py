"""Beams of the real model, twenty prompts at a time, are those that transformers finds."""

import random

import pytest

from quire_engine.core.engine import EngineCore
from quire_engine.execution.base import Executor
from quire_engine.protocol.beams import BeamParams
from quire_engine.protocol.messages import ModelFacts
from tests.engine.beam_oracle import ask, search_with_core, search_with_transformers
from tests.engine.parity.conftest import CONFIG, Judge, Outputs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

NUM_PROMPTS = 20
NUM_TOKENS = 10
TIE = 1e-3
"""Scores closer than this are a tie: rounding may order them either way."""


def test_four_beams_of_twenty_prompts(
    loaded: tuple[Executor, ModelFacts], prompts: Outputs, judge: Judge
) -> None:
    executor, facts = loaded
    core = EngineCore(CONFIG, executor, facts, random_source=random.Random(0))
    params, stops = BeamParams(width=4), (0, 2)
    shortest = sorted(prompts, key=len)[:NUM_PROMPTS]
    requests = [
        ask(params, f"p{number}", prompt, NUM_TOKENS, stops)
        for number, prompt in enumerate(shortest)
    ]
    found = search_with_core(core, requests)
    for number, prompt in enumerate(shortest):
        expected = search_with_transformers(
            judge.oracle.model, prompt, params, max_tokens=NUM_TOKENS, stop_token_ids=stops
        )
        ours = found[f"p{number}"]
        assert [one.score for one in ours] == pytest.approx(
            [one.score for one in expected], abs=TIE
        )
        for one, other in zip(ours, expected, strict=True):
            is_tie = any(
                third is not other and abs(third.score - other.score) < TIE for third in expected
            )
            assert one.token_ids == other.token_ids or is_tie

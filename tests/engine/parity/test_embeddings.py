"""Embeddings of the default model are transformers' final hidden states of the same file."""

import numpy as np
import pytest

from quire_engine.protocol.messages import AddRequest
from quire_engine.protocol.sampling import Pooling, SamplingParams
from tests.engine.parity.conftest import Judge
from tests.engine.parity.test_parity import Loaded, new_core

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

POOLINGS: tuple[Pooling, ...] = ("mean", "last")


def test_they_equal_transformers(loaded: Loaded, prompts: list[list[int]], judge: Judge) -> None:
    chosen = sorted(prompts, key=len)[1:12:2]
    core = new_core(loaded)
    for index, prompt in enumerate(chosen):
        for pooling in POOLINGS:
            sampling = SamplingParams(max_tokens=1, temperature=0.0, pooling=pooling)
            request = AddRequest(
                client_id="test",
                request_id=f"{pooling} {index}",
                prompt_token_ids=prompt,
                sampling=sampling,
            )
            core.add(request, now=0.0)
    vectors = {}
    while core.has_work():
        for _, delta in core.step(now=0.0):
            assert delta.embedding is not None
            vectors[delta.request_id] = np.frombuffer(delta.embedding, "<f4")

    assert len(vectors) == 2 * len(chosen)
    for index, prompt in enumerate(chosen):
        states = judge.oracle.hidden_states(prompt).double().numpy()
        for pooling, expected in zip(POOLINGS, (states.mean(0), states[-1]), strict=True):
            found = vectors[f"{pooling} {index}"]
            assert np.linalg.norm(found - expected) < 1e-4 * np.linalg.norm(expected)

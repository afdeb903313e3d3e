"""Steps that run kernel by kernel on the card: embeddings and scores beside rows that generate."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
import torch

from quire_engine.execution.base import StartedRow
from tests.gpu.test_executor import GREEDY, TOLERANCE, prefill, prompts, source_of, start_executor
from tests.unit.execution.cuda_cases import reference_logits, reference_states

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def test_embeddings_and_scores_are_the_references() -> None:
    source = source_of("llama3")
    executor, _ = start_executor(source)
    texts = prompts([130, 17, 60], source.spec.vocab_size)
    wishes = [
        msgspec.structs.replace(GREEDY, pooling="mean"),
        msgspec.structs.replace(GREEDY, pooling="last"),
        msgspec.structs.replace(GREEDY, num_logprobs=2),
    ]
    batch = prefill(texts)
    batch.started = [
        StartedRow(row.row, row.token_ids, row.block_ids, wish, len(row.token_ids), 1)
        for row, wish in zip(batch.started, wishes, strict=True)
    ]
    result = executor.run(batch)
    assert result.pooled is not None
    assert result.logprobs is not None

    mean, last = (reference_states(source, text).double().numpy() for text in texts[:2])
    for found, expected in (
        (result.pooled[0] / len(texts[0]), mean.mean(0)),
        (result.pooled[1], last[-1]),
    ):
        assert np.linalg.norm(found - expected) <= TOLERANCE * np.linalg.norm(expected)
    logits = reference_logits(source, texts[2])[-1]
    expected_scores = torch.log_softmax(logits, -1)
    scores = result.logprobs[2]
    assert scores is not None
    assert abs(scores.logprob - expected_scores[result.token_ids[2]]) <= (
        2 * TOLERANCE * logits.abs().max()
    )
    executor.close()

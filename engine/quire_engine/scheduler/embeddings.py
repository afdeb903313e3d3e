"""Embeddings of prompts: sums of what steps found, handed out with a prompt's last chunk."""

from quire_engine.execution.base import StepResult
from quire_engine.protocol.messages import TokenDelta
from quire_engine.scheduler.plan import Plan


def attach_embeddings(plan: Plan, result: StepResult, deltas: list[tuple[str, TokenDelta]]) -> None:
    """Add up a step's hidden states, and put embeddings that are whole into its deltas.

    Such a request has no token; what stands for one in the step's result is dropped.
    """
    found = result.pooled or {}
    by_id = {delta.request_id: delta for _, delta in deltas}
    for index, request in enumerate(plan.requests):
        pooling = request.sampling.pooling
        if pooling is None:
            continue
        part = found.get(plan.batch.chunks.rows[index])
        if part is not None:
            # one that was preempted in its prompt begins anew
            begins = pooling == "last" or plan.batch.chunks.starts[index] == 0
            sums = request.pooled_states
            if begins:
                sums = part
            elif sums is None:
                raise RuntimeError("bug: the beginning of a prompt was not computed to be pooled")
            else:
                sums = sums + part
            request.pooled_states = sums
        delta = by_id.get(request.request_id)
        if delta is not None and request.pooled_states is not None:
            count = request.num_prompt_tokens if pooling == "mean" else 1
            delta.token_ids = []
            delta.embedding = (request.pooled_states / count).astype("<f4").tobytes()

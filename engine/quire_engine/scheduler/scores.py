"""Scores of tokens on their way from the executor to those who asked for them."""

from quire_engine.execution.base import StepResult
from quire_engine.protocol.messages import TokenDelta
from quire_engine.scheduler.plan import Plan


def attach_scores(plan: Plan, result: StepResult, deltas: list[tuple[str, TokenDelta]]) -> None:
    """Put a step's scores into its deltas; a prompt's go out whole, with the first token."""
    by_id = {delta.request_id: delta for _, delta in deltas}
    chunks = plan.batch.chunks
    sampled = iter(result.logprobs or ())
    of_prompts = result.prompt_logprobs or {}
    for index, request in enumerate(plan.requests):
        if chunks.rows[index] in of_prompts and request.lacks_prompt_scores:
            # one that was preempted in its prompt begins anew
            del request.prompt_logprobs[chunks.starts[index] :]
            request.prompt_logprobs += of_prompts[chunks.rows[index]]
        score = next(sampled, None) if chunks.samples[index] else None
        delta = by_id.get(request.request_id)
        if delta is None:
            continue
        if score is not None:
            delta.logprobs = [score]
        is_first = len(request.token_ids) == request.num_prompt_tokens + 1
        if is_first and request.sampling.num_prompt_logprobs is not None:
            delta.prompt_logprobs = request.prompt_logprobs

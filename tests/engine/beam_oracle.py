"""transformers' own beam search: what ours must find, in its order and with its scores."""

import warnings
from dataclasses import dataclass
from typing import Any

import torch

from quire_engine.core.engine import EngineCore
from quire_engine.protocol.beams import BeamParams
from quire_engine.protocol.messages import AddRequest
from quire_engine.protocol.sampling import SamplingParams


@dataclass(frozen=True)
class Found:
    """One continuation, and its score with the length penalty."""

    token_ids: list[int]
    score: float


@torch.inference_mode()
def search_with_transformers(
    model: Any,
    prompt: list[int],
    params: BeamParams,
    *,
    max_tokens: int,
    stop_token_ids: tuple[int, ...],
    min_tokens: int = 0,
) -> list[Found]:
    """Return what transformers finds, the best first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=False,
            num_beams=params.width,
            num_return_sequences=params.width,
            max_new_tokens=max_tokens,
            min_new_tokens=min_tokens,
            length_penalty=params.length_penalty,
            early_stopping=params.early_stopping,
            eos_token_id=list(stop_token_ids) or None,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_scores=True,
        )
    answers = []
    for row, score, beams in zip(
        found.sequences.tolist(),
        found.sequences_scores.tolist(),
        found.beam_indices.tolist(),
        strict=True,
    ):
        length = sum(beam >= 0 for beam in beams)  # the rest is padding
        answers.append(Found(row[len(prompt) : len(prompt) + length], score))
    return answers


def ask(
    params: BeamParams, name: str, prompt: list[int], max_tokens: int, stops: tuple[int, ...]
) -> AddRequest:
    """A request whose answers are scored, for all that the search keeps."""
    return AddRequest(
        client_id="test",
        request_id=name,
        prompt_token_ids=prompt,
        sampling=SamplingParams(max_tokens=max_tokens, stop_token_ids=stops, num_logprobs=0),
        num_sequences=params.width,
        beams=params,
    )


def search_with_core(core: EngineCore, requests: list[AddRequest]) -> dict[str, list[Found]]:
    """Let a core find all of them together; every account is checked after every step."""
    found: dict[str, list[Found]] = {request.request_id: [] for request in requests}
    params = {request.request_id: request.beams for request in requests}
    for request in requests:
        assert core.add(request, 0.0) is None
    now = 0.0
    while core.has_work():
        now += 1.0
        for _, delta in core.step(now):
            assert delta.error is None
            if delta.finish_reason is None:
                continue
            name = delta.request_id.partition(".")[0]
            own = params[name]
            assert own is not None
            assert delta.logprobs is not None
            total = sum(score.logprob for score in delta.logprobs)
            score = total / len(delta.token_ids) ** own.length_penalty
            found[name].append(Found(delta.token_ids, score))
        core.check_invariants()
    return found

"""transformers on the same GGUF file, in float32: what greedy tokens must be.

Generating with it takes minutes, but checking does not: one forward pass over prompt and output
gives the scores of every position, and an output is what greedy decoding gives exactly if each
of its tokens has the highest score given those before it.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

TIE = 1e-3
"""Logits closer than this are a tie: rounding may choose either."""


@dataclass(frozen=True)
class Tie:
    """A token that is not the oracle's first choice, but as good within `TIE`."""

    index: int
    token_id: int
    best_id: int
    gap: float


class Oracle:
    """Judges greedy outputs of one model."""

    def __init__(self, path: Path) -> None:
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.model = AutoModelForCausalLM.from_pretrained(
                str(path.parent), gguf_file=path.name, dtype=torch.float32
            )

    @torch.inference_mode()
    def hidden_states(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Return the final hidden states of a text: [len(token_ids), hidden], float32."""
        states = self.model.model(torch.tensor([list(token_ids)])).last_hidden_state
        return torch.as_tensor(states[0])

    @torch.inference_mode()
    def check(self, prompt_ids: Sequence[int], output_ids: Sequence[int]) -> list[Tie]:
        """Return the ties of an output; any other difference is an AssertionError."""
        start = len(prompt_ids) - 1
        ids = torch.tensor([[*prompt_ids, *output_ids[:-1]]])
        logits = self.model(ids, logits_to_keep=len(output_ids)).logits[0]
        assert ids.shape[1] - start == len(output_ids)
        best, best_ids = logits.max(dim=-1)
        chosen = logits.gather(1, torch.tensor(output_ids)[:, None])[:, 0]
        gaps = best - chosen
        ties = [
            Tie(index, output_ids[index], int(best_ids[index]), float(gaps[index]))
            for index in torch.nonzero(gaps).flatten().tolist()
        ]
        wrong = [tie for tie in ties if tie.gap >= TIE]
        assert not wrong, f"not the most likely tokens after {len(prompt_ids)} of prompt: {wrong}"
        return ties

"""What a request of the library came to."""

from dataclasses import dataclass
from typing import Literal

from quire_engine.protocol.sampling import TokenLogprobs

EndedBy = Literal["stop", "length", "error", "timeout", "abort"]


@dataclass(frozen=True, kw_only=True)
class Result:
    """One request that has ended; the text is what there was until then, however it ended."""

    request_id: str
    output_text: str
    token_ids: tuple[int, ...]
    """Tokens that were generated, an end token among them."""
    num_prompt_tokens: int
    finish_reason: EndedBy
    stop_reason: int | str | None = None
    """The stop text or token that ended it; None for the model's own end token."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """A score for each generated token, if they were asked for."""
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    """A score for each token of the prompt from the second on, if they were asked for."""
    error: str | None = None
    """Why, where the reason is error or timeout."""

    @property
    def is_success(self) -> bool:
        """Whether the answer is complete: by a stop, or as long as was asked for."""
        return self.finish_reason in ("stop", "length")

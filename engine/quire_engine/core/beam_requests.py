"""From a request that wants beam search to the sequences that carry its beams."""

from collections.abc import Callable, Sequence

from quire_engine.errors import QuireError, RequestError
from quire_engine.protocol.messages import AddRequest
from quire_engine.protocol.sampling import SamplingParams
from quire_engine.scheduler.beam_search import BeamSearch
from quire_engine.scheduler.beams import BeamGroup
from quire_engine.scheduler.request import Request
from quire_engine.tokenizing.tokenizer import Tokenizer


class Speller:
    """Spells tokens for searches with stop texts; reads the tokenizer when the first one comes.

    Parameters
    ----------
    load
        Reads the tokenizer; None where there is none.
    """

    def __init__(self, load: Callable[[], Tokenizer] | None) -> None:
        self._load = load
        self._tokenizer: Tokenizer | None = None
        self._spelled: dict[int, bytes] = {}

    def __call__(self, token_id: int) -> bytes:
        """Return what a token adds to a text: control tokens nothing."""
        spelled = self._spelled.get(token_id)
        if spelled is None:
            spelled = self._spelled[token_id] = self._spell(token_id)
        return spelled

    def prepare(self) -> None:
        """Be able to spell.

        Raises
        ------
        RequestError
            There is no tokenizer, or it cannot be read.
        """
        if self._tokenizer is not None:
            return
        if self._load is None:
            raise RequestError("stop: not with beam search here", parameter="stop")
        try:
            self._tokenizer = self._load()
        except QuireError as error:
            raise RequestError(f"stop: not with beam search: {error}", parameter="stop") from error

    def _spell(self, token_id: int) -> bytes:
        if self._tokenizer is None:
            raise RuntimeError("bug: tokens are spelled before `prepare`")
        if token_id in self._tokenizer.special_token_ids:
            return b""
        return self._tokenizer.spelling.bytes_of(token_id)


def check_beams(request: AddRequest, speller: Speller) -> None:
    """Refuse what beams cannot do, and have ready what they need.

    Raises
    ------
    RequestError
        It has a grammar as well, or stop texts that cannot be looked for.
    """
    if request.grammar is not None:
        raise RequestError(
            "use_beam_search: not together with structured output", parameter="use_beam_search"
        )
    if request.beams is not None and request.beams.stop_texts:
        speller.prepare()


def make_group(
    request: AddRequest, members: Sequence[Request], speller: Speller, max_length: int
) -> None:
    """Bind sequences into a search, made for their request; the speller is prepared if need be."""
    params = request.beams
    if params is None:
        raise RuntimeError("bug: a search is made for a request without beams")
    search = BeamSearch(
        params,
        max_tokens=max_length - len(request.prompt_token_ids),
        stop_token_ids=frozenset(request.sampling.stop_token_ids),
        min_tokens=request.sampling.min_tokens,
        num_shown=request.sampling.num_logprobs,
        spell=speller if params.stop_texts else None,
    )
    BeamGroup(search, members, request.num_sequences)


def beam_sampling(request: AddRequest) -> SamplingParams:
    """Return how each beam is computed: its likeliest tokens are scored, and chosen among here."""
    sampling, params = request.sampling, request.beams
    if params is None:
        raise RuntimeError("bug: beams are computed for a request without beams")
    num_candidates = params.width + len(set(sampling.stop_token_ids))
    return SamplingParams(
        max_tokens=sampling.max_tokens,
        temperature=0.0,
        stop_token_ids=sampling.stop_token_ids,
        num_logprobs=max(num_candidates, sampling.num_logprobs or 0),
        num_prompt_logprobs=sampling.num_prompt_logprobs,
    )

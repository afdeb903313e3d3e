"""Predicted occupancy of the requests that are admitted, as of their newest tokens.

The whole sum is computed when it is asked for, once for all that ask between two steps. Kept up to
date by renewing one request now and then, it lags behind, and that is no small error: those that
still run have outlived their last prediction, so that the sum came out several deviations too
large.

One row per horizon, one column per request: whatever is known of each request is one line of
numbers, so that the inner loops run over hundreds of requests and not over ten horizons. Tokens are
counted here too, since asking each of 256 requests costs as much as half of the sum. After a step
nothing of this is in the processor's caches any more, so that each call of numpy counts.
"""

from collections.abc import Iterable, Sequence
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from quire_engine.kvcache.block import Block
from quire_engine.profiles.output_length import MAX_LENGTH, NUM_BUCKETS, bucket_start
from quire_engine.profiles.output_length_by_prompt import OutputLengthByPrompt, class_of
from quire_engine.protocol.cost import HORIZONS, OccupancyCurve
from quire_engine.protocol.messages import Priority
from quire_engine.scheduler.request import Request

_AHEAD = np.array(HORIZONS)[:, None]
_STARTS = [bucket_start(bucket) for bucket in range(NUM_BUCKETS + 1)]
_BUCKETS = np.repeat(np.arange(NUM_BUCKETS, dtype=np.int16), np.diff(_STARTS))
"""Length to bucket, for all lengths up to MAX_LENGTH."""
_FIRST_CAPACITY = 64
_GENERATED, _PRIVATE, _BEYOND_LIMIT, _CURVE, _IS_BACKGROUND = range(5)
"""Lines of facts: tokens generated, tokens in blocks of its own, tokens beyond max_length (it has
fewer: below 0), where its survival begins, and whether it is ordered as background."""
_GROWING = slice(_GENERATED, _BEYOND_LIMIT + 1)
"""Lines to which each new token adds one."""


class OccupancyTable:
    """Admitted requests, in no order, each at a place of its own in all arrays.

    Parameters
    ----------
    lengths
        How long requests run on; `update` takes over what was learnt there.
    """

    def __init__(self, lengths: OutputLengthByPrompt, *, block_size: int) -> None:
        self._lengths = lengths
        self._block_size = block_size
        self._requests: list[Request] = []
        self._places: dict[Request, int] = {}
        self._facts = np.zeros((5, _FIRST_CAPACITY), dtype=np.int64)
        self._shares = np.zeros(_FIRST_CAPACITY)
        """Per request: its share of blocks that others hold too."""
        self._curves: dict[int, int] = {}
        """Class of lengths to the place where its survival begins."""
        self._survival = np.zeros((2, 0))
        """Intercepts and slopes of all survival curves, one bucket after the other."""
        self._growing: Sequence[Request] = ()
        self._growing_places = np.zeros(0, dtype=np.int64)
        self._num_background = 0
        self._longest = 0
        """The largest max_length of all that ever were counted."""
        self._sums: tuple[OccupancyCurve, OccupancyCurve] | None = None

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: Request) -> None:
        """Count a request from now on."""
        place = len(self._requests)
        if place == len(self._shares):
            self._facts = np.concatenate((self._facts, np.zeros_like(self._facts)), axis=1)
            self._shares = np.concatenate((self._shares, np.zeros_like(self._shares)))
        self._requests.append(request)
        self._places[request] = place
        self._longest = max(self._longest, request.max_length)
        num_tokens = len(request.token_ids)
        self._facts[:, place] = (
            num_tokens - request.num_prompt_tokens,
            num_tokens,
            num_tokens - request.max_length,
            self._curve_of(class_of(request.num_prompt_tokens)),
            request.level is Priority.BACKGROUND,
        )
        self._num_background += request.level is Priority.BACKGROUND
        self._shares[place] = 0.0
        self._share(place)
        self._forget()

    def remove(self, request: Request) -> None:
        """Count a request no more."""
        place, last = self._places.pop(request), self._requests.pop()
        self._num_background -= int(self._facts[_IS_BACKGROUND, place])
        if last is not request:
            self._requests[place] = last
            self._places[last] = place
            self._facts[:, place] = self._facts[:, len(self._requests)]
            self._shares[place] = self._shares[len(self._requests)]
        self._forget()

    def promote(self, request: Request) -> None:
        """Count a background request as an interactive one."""
        self._facts[_IS_BACKGROUND, self._places[request]] = False
        self._num_background -= 1
        self._sums = None

    def grow(self, requests: Sequence[Request], num_tokens: int) -> None:
        """Note that each of these has so many more tokens; those not counted here are left out.

        From one step to the next they are nearly always the same, and then none is looked for.
        """
        if requests != self._growing:
            places = (self._places.get(request) for request in requests)
            self._growing_places = np.array([p for p in places if p is not None], dtype=np.int64)
            self._growing = requests
        self._facts[_GROWING, self._growing_places] += num_tokens
        self._sums = None

    def recount(self, requests: Iterable[Request]) -> None:
        """Look how many tokens each of these has."""
        for request in requests:
            facts = self._facts[:, self._places[request]]
            facts[_GROWING] += request.num_generated - facts[_GENERATED]
        self._sums = None

    def update(self) -> None:
        """Take over what was learnt of lengths, and look anew at which blocks are shared."""
        self._curves.clear()
        self._survival = np.zeros((2, 0))
        count = len(self._requests)
        classes = [class_of(request.num_prompt_tokens) for request in self._requests]
        self._facts[_CURVE, :count] = [self._curve_of(length_class) for length_class in classes]
        self._facts[_PRIVATE, :count] = [len(request.token_ids) for request in self._requests]
        self._shares[:count] = 0.0
        for place in range(count):
            self._share(place)
        self._sums = None

    def total(self) -> OccupancyCurve:
        """Return the predicted occupancy of all."""
        return self._sum()[0]

    def of_background(self) -> OccupancyCurve:
        """Return the predicted occupancy of those that are ordered as background."""
        return self._sum()[1]

    def expect(self, row: int) -> Iterable[tuple[Request, int, float, float]]:
        """Yield request, tokens, P(still runs) and blocks at a horizon, for each."""
        alive, sizes = self._predict()
        tokens = [len(request.token_ids) + HORIZONS[row] for request in self._requests]
        return zip(self._requests, tokens, alive[row].tolist(), sizes[row].tolist(), strict=True)

    def check_invariants(self, requests: Iterable[Request]) -> None:
        """Check that exactly these requests are counted, as what they are; RuntimeError if not."""
        if self._places.keys() != set(requests):
            raise RuntimeError("bug: the curve counts other requests than are admitted")
        for request, place in self._places.items():
            if self._requests[place] is not request:
                raise RuntimeError("bug: a request has the place of another on the curve")
            expected = {
                _GENERATED: len(request.token_ids) - request.num_prompt_tokens,
                _BEYOND_LIMIT: len(request.token_ids) - request.max_length,
                _CURVE: self._curves[class_of(request.num_prompt_tokens)],
                _IS_BACKGROUND: request.level is Priority.BACKGROUND,
            }
            if self._facts[list(expected), place].tolist() != list(expected.values()):
                raise RuntimeError("bug: a request is counted as another, or with other tokens")
        if self._sums is not None:
            remembered, self._sums = self._sums[0].mean, None
            if not np.allclose(remembered, self._sum()[0].mean):
                raise RuntimeError("bug: the curve is older than the requests' newest tokens")

    def _forget(self) -> None:
        """What was computed for other requests, or for others at their places, holds no more."""
        self._growing = ()
        self._growing_places = np.zeros(0, dtype=np.int64)
        self._sums = None

    def _sum(self) -> tuple[OccupancyCurve, OccupancyCurve]:
        if self._sums is None:
            alive, sizes = self._predict()
            terms = np.empty((3, *alive.shape))
            terms[0] = alive
            mean = np.multiply(alive, sizes, out=terms[1])
            np.multiply(mean, sizes - mean, out=terms[2])
            background = OccupancyCurve()
            if self._num_background:
                is_background = self._facts[_IS_BACKGROUND, : len(self._requests)] > 0
                background = _curve(terms[:, :, is_background])
            self._sums = (_curve(terms), background)
        return self._sums

    def _predict(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return P(still runs) and blocks, one row per horizon, one column per request."""
        count = len(self._requests)
        facts = self._facts[:, :count]
        given, private = facts[_GENERATED : _PRIVATE + 1, None] + _AHEAD
        if self._longest > MAX_LENGTH - HORIZONS[-1]:
            given = np.minimum(given, MAX_LENGTH)
        places = _BUCKETS.take(given) + facts[_CURVE]
        intercepts, slopes = self._survival
        longer = intercepts.take(places) - slopes.take(places) * given
        alive = longer / longer[0]
        alive[1:][facts[_BEYOND_LIMIT] >= -_AHEAD[1:]] = 0.0
        sizes = np.ceil(private / self._block_size) + self._shares[:count]
        return alive, sizes

    def _curve_of(self, length_class: int) -> int:
        start = self._curves.get(length_class)
        if start is None:
            start = self._curves[length_class] = self._survival.shape[1]
            coefficients = np.array(self._lengths.curve_of(length_class).coefficients)
            self._survival = np.concatenate((self._survival, coefficients), axis=1)
        return start

    def _share(self, place: int) -> None:
        """Look which blocks at the head of a request's table others hold too.

        References never grow along a chain, so the first private block ends the search; a block
        with r holders counts 1/r to each, so that all requests together count it once.
        """
        blocks = self._requests[place].table.blocks
        if not blocks or blocks[0].ref_count == 1:
            return
        shares = [1.0 / block.ref_count for block in takewhile(_is_shared, blocks)]
        self._facts[_PRIVATE, place] -= len(shares) * self._block_size
        self._shares[place] = sum(shares)


def _is_shared(block: Block) -> bool:
    return block.ref_count != 1


def _curve(terms: NDArray[np.float64]) -> OccupancyCurve:
    """Sum the requests' probabilities, means and variances."""
    return OccupancyCurve.of(*terms.sum(axis=2).tolist())

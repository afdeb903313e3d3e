"""Random numbers keyed by (seed, position), so that no other request can change them.

A counter-based generator: the number for a key is computed, not drawn from a stream. Mixing is
splitmix64's (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MASK = (1 << 64) - 1


def draw_uniforms(seeds: Sequence[int], positions: Sequence[int]) -> NDArray[np.float64]:
    """Return one number in [0, 1) for each (seed, position).

    Parameters
    ----------
    seeds
        Any integers; their lowest 64 bits count.
    positions
        Position of the token to be chosen, at least 0; as many as seeds.

    Returns
    -------
    numpy.ndarray
        [len(seeds)], float64, with 53 random bits each.
    """
    keys = np.array([seed & _MASK for seed in seeds], dtype=np.uint64)
    counters = np.array(positions, dtype=np.uint64)
    bits = _mix(_mix(keys + _GOLDEN) + (counters + np.uint64(1)) * _GOLDEN)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))

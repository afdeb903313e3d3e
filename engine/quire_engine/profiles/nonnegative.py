"""Least squares with coefficients that must not be negative, from the normal equations.

Block principal pivoting after Kim and Park, "Fast nonnegative matrix factorization" (SIAM J. Sci.
Comput. 33, 2011): all coefficients of the wrong sign change sides at once, and one at a time when
that stops helping. A handful of small Cholesky solves, in plain Python.
"""

import math
from operator import mul

Matrix = list[list[float]]

_RIDGE = 1e-7
"""Added to the scaled diagonal: coefficients that the evidence can't tell apart share evenly."""
_TOLERANCE = 1e-9
_PATIENCE = 3


def solve_nonnegative(
    gram: Matrix, moments: list[float], guess: list[bool] | None = None
) -> list[float]:
    """Minimise x' gram x / 2 - moments' x over x >= 0.

    Parameters
    ----------
    gram
        [n, n], symmetric, positive semidefinite, finite. Columns of zeros get the coefficient 0.
    moments
        [n].
    guess
        [n], which coefficients will be above 0; a good guess saves time, a bad one costs some.
    """
    scales = [1.0 / math.sqrt(row[i]) if row[i] > 0.0 else 0.0 for i, row in enumerate(gram)]
    used = [i for i, scale in enumerate(scales) if scale > 0.0]
    scaled = [[gram[i][j] * scales[i] * scales[j] for j in used] for i in used]
    for i in range(len(used)):
        scaled[i][i] = 1.0 + _RIDGE
    targets = [moments[i] * scales[i] for i in used]
    free = [guess is None or guess[i] for i in used]
    solution = [0.0] * len(moments)
    for i, value in zip(used, _pivot(scaled, targets, free), strict=True):
        solution[i] = max(value, 0.0) * scales[i]
    return solution


def _pivot(gram: Matrix, moments: list[float], free: list[bool]) -> list[float]:
    """Block principal pivoting on a positive definite matrix with ones on its diagonal."""
    size = len(moments)
    fewest, patience = size + 1, _PATIENCE
    values: list[float] = [0.0] * size
    for _ in range(3 * size + 3):
        chosen = [i for i in range(size) if free[i]]
        values = [0.0] * size
        for i, value in zip(chosen, _solve(gram, moments, chosen), strict=True):
            values[i] = value
        wrong = [i for i in range(size) if _is_wrong(gram[i], moments[i], values, i, free[i])]
        if not wrong:
            break
        if len(wrong) < fewest:
            fewest, patience = len(wrong), _PATIENCE
        else:
            patience -= 1
        for i in wrong if patience > 0 else wrong[-1:]:
            free[i] = not free[i]
    return values


def _is_wrong(
    row: list[float], moment: float, values: list[float], index: int, is_free: bool
) -> bool:
    """Whether a free value is negative, or one held at 0 would improve by growing."""
    if is_free:
        return values[index] < -_TOLERANCE
    slope: float = sum(map(mul, row, values)) - moment
    return slope < -_TOLERANCE


def _solve(gram: Matrix, moments: list[float], chosen: list[int]) -> list[float]:
    """Solve the equations of the chosen rows and columns, by Cholesky."""
    lower: Matrix = []
    forward: list[float] = []
    for i in chosen:
        source = gram[i]
        row: list[float] = []
        for j, above in zip(chosen, lower, strict=False):  # all rows before this one
            row.append((source[j] - sum(map(mul, row, above))) / above[-1])
        # rounding must not make the pivot negative: it is at least a part of the ridge
        pivot = math.sqrt(max(source[i] - sum(map(mul, row, row)), _RIDGE / 16))
        forward.append((moments[i] - sum(map(mul, row, forward))) / pivot)
        lower.append([*row, pivot])
    return _substitute_backward(lower, forward)


def _substitute_backward(lower: Matrix, forward: list[float]) -> list[float]:
    """Solve lower' x = forward; `forward` is used up."""
    for i in range(len(lower) - 1, -1, -1):
        row = lower[i]
        value = forward[i] = forward[i] / row[i]
        for j in range(i):
            forward[j] -= value * row[j]
    return forward

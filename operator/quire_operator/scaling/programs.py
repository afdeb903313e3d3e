"""Linear programs of accelerators and groups of buckets, with whole replicas or parts of them.

By HiGHS on one thread, with a fixed seed and a bound on nodes, so that the same question has the
same answer.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np

# `highspy.Highs` prints a banner when it is made, before it can be told not to
from highspy._core import _Highs

from quire_operator.scaling.grouping import Group

_MAX_NODES = 200
_GAP = 0.005
_SEED = 7


@dataclass(frozen=True, slots=True)
class Row:
    """Bounds of a sum over columns."""

    values: Mapping[int, float]
    """By column."""
    lower: float
    upper: float


class Shares:
    """Columns of the parts of each group of buckets that each accelerator serves.

    Parameters
    ----------
    first
        The first one's number.
    """

    def __init__(self, groups: Sequence[Group], num_options: int, first: int) -> None:
        self.pairs: list[tuple[int, int]] = []
        """Of each column, the accelerator and a group that it can serve."""
        self.of_group: list[dict[int, float]] = [{} for _ in groups]
        """Of each group, its columns."""
        self.loads: list[tuple[dict[int, float], dict[int, float]]]
        """Of each accelerator, what it would carry of memory and of time, by column."""
        self.loads = [({}, {}) for _ in range(num_options)]
        column = first
        for at, group in enumerate(groups):
            for option, load in enumerate(group.loads):
                if load is None:
                    continue
                self.pairs.append((option, at))
                self.of_group[at][column] = 1.0
                memory, time = self.loads[option]
                memory[column], time[column] = load
                column += 1


def make_model(
    costs: Sequence[float],
    lower: Sequence[float],
    upper: Sequence[float],
    rows: Sequence[Row],
    *,
    num_integers: int = 0,
) -> highspy.HighsLp:
    """A program that minimises these costs of its columns.

    Parameters
    ----------
    num_integers
        Columns that are whole numbers: the first ones.
    """
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(costs), len(rows)
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = map(np.array, (costs, lower, upper))
    lp.row_lower_ = np.array([row.lower for row in rows])
    lp.row_upper_ = np.array([row.upper for row in rows])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.cumsum([0, *(len(row.values) for row in rows)])
    lp.a_matrix_.index_ = np.array([column for row in rows for column in row.values], dtype=int)
    lp.a_matrix_.value_ = np.array([value for row in rows for value in row.values.values()])
    if num_integers:
        integer, real = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
        lp.integrality_ = [integer] * num_integers + [real] * (len(costs) - num_integers)
    return lp


class _Solvers(threading.local):
    """Of each thread: one for programs with integers, one for those without.

    They are used again, for to make one takes as long as to solve a small program. Nothing of a
    program before is left in them.
    """

    def __init__(self) -> None:
        self.integer = _make_solver(presolve="choose")
        self.linear = _make_solver(presolve="off")


def _make_solver(presolve: str) -> Any:  # noqa: ANN401 - highspy tells no types
    solver = _Highs()
    for name, value in (
        ("output_flag", False),
        ("threads", 1),
        ("random_seed", _SEED),
        ("presolve", presolve),
        ("mip_max_nodes", _MAX_NODES),
        ("mip_rel_gap", _GAP),
        ("mip_heuristic_run_feasibility_jump", False),  # half of the time, for nothing better
    ):
        solver.setOptionValue(name, value)
    return solver


_solvers = _Solvers()


def run(lp: highspy.HighsLp) -> list[float]:
    """Run HiGHS: all columns' values.

    Raises
    ------
    RuntimeError
        It finds no solution at all: the bounds contradict each other, which callers see to.
    """
    solver = _solvers.integer if len(lp.integrality_) else _solvers.linear
    solver.passModel(lp)
    solver.run()
    values = list(solver.getSolution().col_value)
    if len(values) != lp.num_col_ or not solver.getSolution().value_valid:
        raise RuntimeError(f"bug: no mix found: {solver.getModelStatus()}")
    return values

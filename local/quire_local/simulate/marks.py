"""What happened, as marks below a chart's time axis: each says at the pointer what it was.

    ▼  something broke, or was whole again
    ●  somebody ordered other replicas

Kinds differ by shape and by place, not by colour alone. Marks that would lie on each other are one
that tells all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from quire_local.simulate.charts import WIDTH, Frame
from quire_local.simulate.results import Decided, SimulationResult

Kind = Literal["fault", "change"]
LEGEND: dict[Kind, str] = {"fault": "fault (dotted line)", "change": "change of replicas"}
"""What marks stand for."""
_NO_BREAK = "\N{NO-BREAK SPACE}"
_LANE = 18
"""Height of the marks of one kind."""
_SIZE = 7.0
"""Half of a mark's width; nearer than its width marks are joined."""
_MOST_TOLD = 6
"""Of what one mark tells; the list has the others."""


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One thing that happened."""

    at: float
    kind: Kind
    what: str
    """What broke, or the replicas that were ordered."""
    reason: str = ""
    """Why, as the scaler said it."""

    @property
    def words(self) -> str:
        """All of it in a line."""
        why = f": {self.reason}" if self.reason else ""
        return f"{self.at:.0f} s, {self.what}{why}"


def moments_of(result: SimulationResult) -> list[Moment]:
    """Everything that happened to one scaler, in order; faults before what was decided then."""
    found = [Moment(at=one.at, kind="fault", what=one.what) for one in result.faults]
    found += [
        Moment(at=one.at, kind="change", what=_replicas(one), reason=one.reason)
        for one in result.decisions
    ]
    return sorted(found, key=lambda one: one.at)


def _replicas(decided: Decided) -> str:
    """Of each type, with no end of a line between a type and its number."""
    found = (f"{name}{_NO_BREAK}{number}" for name, number in decided.replicas.items() if number)
    return ", ".join(found) or "no replica"


def fault_times(moments: Sequence[Moment], last: float) -> list[float]:
    """When something broke, where lines across charts say so: one for each mark."""
    faults = [one for one in moments if one.kind == "fault"]
    return [group[0].at for group in _join(faults, Frame(last, 1.0))]


def mark_strip(moments: Sequence[Moment], *, last: float, label: str) -> str:
    """Draw the marks of all kinds that there are; nothing without any.

    Parameters
    ----------
    last
        The time at which the chart above ends.
    """
    kinds = [kind for kind in LEGEND if any(one.kind == kind for one in moments)]
    if not kinds:
        return ""
    frame = Frame(last, 1.0)
    parts = []
    for lane, kind in enumerate(kinds):
        of_kind = [one for one in moments if one.kind == kind]
        y = _LANE * lane + _LANE / 2
        parts.append(
            f'<line class="grid" x1="{frame.x(0)}" x2="{frame.x(last)}" y1="{y}" y2="{y}"/>'
        )
        parts += [_mark(group, frame, y) for group in _join(of_kind, frame)]
    return (
        f'<svg viewBox="0 0 {WIDTH} {_LANE * len(kinds)}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def _join(moments: Sequence[Moment], frame: Frame) -> list[list[Moment]]:
    """Those that would lie on each other, together."""
    groups: list[list[Moment]] = []
    for one in moments:
        if groups and _x(groups[-1][0], frame) + 2 * _SIZE > _x(one, frame):
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


def _x(moment: Moment, frame: Frame) -> float:
    return min(frame.x(moment.at), WIDTH - _SIZE - 1)


def _mark(group: Sequence[Moment], frame: Frame, y: float) -> str:
    """One mark; of several at once it has a second outline."""
    x, kind = _x(group[0], frame), group[0].kind
    told = [one.words for one in group[:_MOST_TOLD]]
    if len(group) > _MOST_TOLD:
        told.append(f"and {len(group) - _MOST_TOLD} more until {group[-1].at:.0f} s")
    several = ' data-several=""' if len(group) > 1 else ""
    title = escape("\n".join(told))
    return f'<g class="moment-{kind}"{several}><title>{title}</title>{_shape(kind, x, y)}</g>'


def _shape(kind: Kind, x: float, y: float) -> str:
    if kind == "change":
        return f'<circle cx="{x}" cy="{y}" r="{_SIZE - 1}"/>'
    points = f"{x - _SIZE:.1f},{y - _SIZE + 1} {x + _SIZE:.1f},{y - _SIZE + 1} {x},{y + _SIZE}"
    return f'<polygon points="{points}"/>'

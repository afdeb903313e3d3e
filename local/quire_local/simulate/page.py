"""One page of charts that needs nothing else: styles and SVG are in it, and no script is."""

from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from itertools import groupby

from quire_local.simulate.charts import Series, band_chart, line_chart
from quire_local.simulate.marks import LEGEND, Moment, fault_times, mark_strip, moments_of
from quire_local.simulate.report import write_table
from quire_local.simulate.results import WINDOW_SECONDS, SimulationResult
from quire_local.words import plain

_TABLE = (
    '<div class="panel scroll" tabindex="0" role="region" aria-label="Table"><pre>{}</pre></div>'
)
_BINDINGS = ("blocks", "seats", "first_token", "step")
_NUM_HUES = 8
_MOST_LISTED = 100
"""Of what happened."""
_STYLE = """
:root { color-scheme: light dark;
  --page: light-dark(#f5f5f3, #101216); --panel: light-dark(#ffffff, #181b21);
  --line: light-dark(#dcdcd6, #2b3039); --ink: light-dark(#1b1d21, #e7e9ed);
  --muted: light-dark(#5a5f68, #9aa2af); --bad: light-dark(#b02a37, #f08a93);
  --hue-0: light-dark(#4477aa, #5f97d3); --hue-1: light-dark(#ee7733, #f0894c);
  --hue-2: light-dark(#228833, #43a659); --hue-3: light-dark(#aa3377, #cb5c9b);
  --hue-4: light-dark(#44aacc, #74d0ec); --hue-5: light-dark(#bba71e, #d8c75c);
  --hue-6: light-dark(#dd5566, #f1818f); --hue-7: light-dark(#009988, #35b5a3);
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  font-variant-numeric: tabular-nums; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1400px; padding: 14px; background: var(--page);
  color: var(--ink); }
h1 { font-size: 17px; margin: 0 0 4px; } h2 { font-size: 15px; margin: 22px 0 8px; }
h3 { font-size: 13px; color: var(--muted); margin: 0 0 6px; font-weight: 600; }
p, dl { margin: 0 0 10px; color: var(--muted); }
.board { display: grid; gap: 14px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 460px), 1fr)); }
.list { max-height: 190px; overflow: auto; }
.panel { border: 1px solid var(--line); border-radius: 10px; background: var(--panel);
  padding: 12px 14px; }
.scroll { overflow-x: auto; margin-bottom: 10px; } pre { margin: 0; font-size: 13px; }
svg { display: block; width: 100%; height: auto; }
svg text { font-size: 11px; fill: var(--muted); }
@media (max-width: 560px) { svg text { font-size: 19px; } }
.grid { stroke: var(--line); } .mark { stroke: var(--bad); stroke-dasharray: 5 4; }
polyline { fill: none; stroke-width: 1.5; stroke-linejoin: round; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; font-size: 12px; color: var(--muted);
  margin-top: 6px; }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 2px;
  margin-right: 5px; }
.legend .dashes { height: 0; width: 16px; border-top: 2px dashed var(--bad); border-radius: 0;
  vertical-align: 4px; }
.moment { stroke: var(--bad); stroke-dasharray: 1 4; stroke-linecap: round; stroke-width: 1.5; }
.moment-fault, .moment-change { stroke: var(--panel); stroke-width: 1; fill: var(--bad); }
.moment-change { fill: var(--ink); } [data-several] { stroke: var(--ink); stroke-width: 2; }
.moment-change[data-several] { stroke: var(--muted); }
[class^="moment-"]:hover { stroke: var(--hue-0); stroke-width: 3; }
.legend .sign-fault, .sign-fault, .sign-change { display: inline-block; width: 11px; height: 10px;
  margin-right: 5px; border-radius: 0; background: var(--bad);
  clip-path: polygon(0 0, 100% 0, 50% 100%); }
.legend .sign-change, .sign-change { width: 10px; background: var(--ink); clip-path: circle(); }
details { margin-top: 14px; } table { border-collapse: collapse; font-size: 13px; }
td, th { text-align: left; padding: 2px 12px 2px 0; vertical-align: top; }
td:first-child, td:has(i) { white-space: nowrap; } th + td { overflow-wrap: anywhere; }
"""


def write_page(
    results: Sequence[SimulationResult],
    *,
    title: str,
    remarks: Sequence[str],
    settings: Mapping[str, object],
    about: str = "scaler",
) -> str:
    """Write the page: the table, all scalers beside each other, then each alone."""
    hues = "".join(
        f".line-{hue} {{ stroke: var(--hue-{hue}); }} .fill-{hue} {{ fill: var(--hue-{hue}); }}"
        f" .back-{hue} {{ background: var(--hue-{hue}); }}\n"
        for hue in range(_NUM_HUES)
    )
    told = "".join(f"<p>{escape(remark)}</p>" for remark in remarks)
    facts = "".join(
        f"<tr><th>--{name.replace('_', '-')}</th><td>{escape(_setting(value))}</td></tr>"
        for name, value in settings.items()
        if value or (value == 0 and value is not False)
    )
    table, _, notes = write_table(results, about=about).partition("\n\n")
    below = "".join(f"<p>{escape(note)}</p>" for note in notes.splitlines())
    body = [
        f"<h1>{escape(title)}</h1>{told}",
        _TABLE.format(escape(table)),
        below,
        "<h2>Beside each other</h2>",
        f'<div class="board">{"".join(_compare(results))}</div>',
        *(f"<h2>{escape(one.scaler)}</h2>{_alone(one)}" for one in results),
        f"<details><summary>Settings</summary><table>{facts}</table></details>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}{hues}</style></head>\n"
        f"<body><main>{chr(10).join(body)}</main></body></html>\n"
    )


def _compare(results: Sequence[SimulationResult]) -> list[str]:
    """Charts with a line for each scaler."""
    costs, queues, kept = [], [], []
    percentiles = {one.percentile for one in results}
    promised = percentiles.pop() if len(percentiles) == 1 else None
    for index, one in enumerate(results):
        hue = index % _NUM_HUES
        cost = [(s.at, s.dollars_per_hour) for s in one.samples]
        costs.append(Series(name=one.scaler, points=cost, hue=hue))
        queue = [(s.at, float(s.num_waiting)) for s in one.samples]
        queues.append(Series(name=one.scaler, points=queue, hue=hue))
        share = [
            (min(at, one.seconds), 100 * window.attainment)
            for window in one.windows
            for at in (window.at, window.at + WINDOW_SECONDS)
        ]
        kept.append(Series(name=one.scaler, points=share, hue=hue))
    return [
        _panel("Cost, $ an hour", line_chart(costs, label="Cost over time"), costs),
        _panel(
            "Waiting requests", line_chart(queues, label="Queue over time", is_count=True), queues
        ),
        _panel(
            "SLO kept, % of the requests of each minute",
            line_chart(kept, label="Attainment over time", unit="%", highest=100.0, mark=promised),
            kept,
            mark=f"promised: {promised}%" if promised else "",
        ),
    ]


def _alone(one: SimulationResult) -> str:
    types = [name for name in one.replica_hours if one.replica_hours[name] > 0]
    hue_of = {name: index % _NUM_HUES for index, name in enumerate(one.replica_hours)}
    moments, last = moments_of(one), one.samples[-1].at if one.samples else 1.0
    draw = partial(line_chart, moments=fault_times(moments, last))
    replicas = [
        Series(
            name=name, points=[(s.at, float(s.ready[name])) for s in one.samples], hue=hue_of[name]
        )
        for name in types
    ]
    pressures = [
        Series(name="mean", points=[(s.at, s.pressure) for s in one.samples], hue=0),
        Series(name="highest", points=[(s.at, s.worst_pressure) for s in one.samples], hue=1),
    ]
    requests = [
        Series(name="running", points=[(s.at, float(s.num_running)) for s in one.samples], hue=2),
        Series(name="waiting", points=[(s.at, float(s.num_waiting)) for s in one.samples], hue=1),
    ]
    panels = [
        _panel(
            "Ready replicas by type",
            draw(replicas, label=f"Replicas of {one.scaler}", is_stacked=True, is_count=True)
            + mark_strip(moments, last=last, label=f"What happened to {one.scaler}: listed below")
            + _signs(moments),
            replicas,
        ),
        _panel(
            "Pressure, and which term binds",
            draw(pressures, label=f"Pressure of {one.scaler}", mark=1.0)
            + _bindings(one)
            + _legend(
                [(name, 3 + index) for index, name in enumerate(_BINDINGS)],
                lead="below, what binds:",
            ),
            pressures,
            mark="full",
        ),
        _panel(
            "Requests",
            draw(requests, label=f"Requests of {one.scaler}", is_count=True),
            requests,
        ),
        _panel("What happened", _happened(moments), []),
    ]
    return f'<div class="board">{"".join(panels)}</div>'


def _signs(moments: Sequence[Moment]) -> str:
    """What marks below the time axis stand for."""
    kinds = [kind for kind in LEGEND if any(one.kind == kind for one in moments)]
    items = [f'<span><i class="sign-{kind}"></i>{LEGEND[kind]}</span>' for kind in kinds]
    return f'<div class="legend">{"".join(items)}</div>' if items else ""


def _bindings(one: SimulationResult) -> str:
    """Bands of the term that bound, as long as the same did."""
    bands = []
    samples = list(one.samples)
    for name, group in groupby(range(len(samples)), key=lambda index: samples[index].binding):
        indices = list(group)
        end = samples[min(indices[-1] + 1, len(samples) - 1)].at
        if name in _BINDINGS:
            bands.append((samples[indices[0]].at, end, name, 3 + _BINDINGS.index(name)))
    last = samples[-1].at if samples else 1.0
    return band_chart(bands, last=last, label=f"Binding term of {one.scaler}")


def _happened(moments: Sequence[Moment]) -> str:
    """The first of all that happened, in a table."""
    rows = "".join(map(_row, moments[:_MOST_LISTED]))
    if not rows:
        return "<p>Nothing was changed, and nothing broke.</p>"
    left = len(moments) - _MOST_LISTED
    more = f"<p>and {left} more, which --json has</p>" if left > 0 else ""
    return f'<div class="list" tabindex="0"><table>{rows}</table>{more}</div>'


def _row(one: Moment) -> str:
    what = f"<td>{escape(one.what)}</td><td>{escape(one.reason)}</td>"
    if not one.reason:
        what = f'<td colspan="2">{escape(one.what)}</td>'
    sign = f'<i class="sign-{one.kind}"></i>{one.kind}'
    return f"<tr><td>{one.at:.0f} s</td><td>{sign}</td>{what}</tr>"


def _setting(value: object) -> str:
    """A setting as people write it."""
    if isinstance(value, dict):
        return ", ".join(f"{name}={_setting(one)}" for name, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(_setting, value))
    return "yes" if value is True else plain(value) if isinstance(value, float) else str(value)


def _panel(heading: str, inner: str, series: Sequence[Series], *, mark: str = "") -> str:
    legend = _legend([(one.name, one.hue) for one in series], mark=mark)
    return f'<section class="panel"><h3>{escape(heading)}</h3>{inner}{legend}</section>'


def _legend(entries: Sequence[tuple[str, int]], *, lead: str = "", mark: str = "") -> str:
    """What colours stand for.

    Parameters
    ----------
    lead
        Words before them.
    mark
        What the dashed line is; empty where there is none.
    """
    items = [f"<span>{escape(lead)}</span>"] if lead else []
    items += [f'<span><i class="back-{hue}"></i>{escape(name)}</span>' for name, hue in entries]
    if mark:
        items.append(f'<span><i class="dashes"></i>{escape(mark)}</span>')
    return f'<div class="legend">{"".join(items)}</div>' if items else ""

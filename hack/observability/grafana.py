"""Dashboards as Grafana reads them, made of their tables by Grafana's own SDK."""

import json
from collections.abc import Iterator

from grafana_foundation_sdk.builders import common as common_parts
from grafana_foundation_sdk.builders import dashboard as parts
from grafana_foundation_sdk.builders import prometheus, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models

from hack.observability.panels import Board, Panel

_WIDTH, _HEIGHT = 12, 8
_SOURCE = models.DataSourceRef(type_val="prometheus", uid="$datasource")


def dashboard_text(board: Board) -> str:
    """The file of one dashboard."""
    found = (
        parts.Dashboard(board.title)
        .uid(f"quire-{board.name}")
        .tags(["quire"])
        .readonly()
        .refresh("30s")
        .time("now-1h", "now")
        .with_variable(
            parts.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
        )
        .with_variable(
            parts.QueryVariable("service")
            .label("Service")
            .datasource(_SOURCE)
            .query(f"label_values({board.series}, service)")
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(models.VariableSort.ALPHABETICAL_ASC)
            .multi(True)
            .include_all(True)
            .all_value(".*")
        )
    )
    if board.marks:
        found = found.annotation(
            parts.AnnotationQuery()
            .name("Scaling decisions")
            .datasource(_SOURCE)
            .enable(True)
            .icon_color("blue")
            .expr(board.marks)
        )
    for title, panels in board.rows:
        found = found.with_row(parts.Row(title))
        for panel in panels:
            found = found.with_panel(_panel(panel))
    text: str = JSONEncoder(sort_keys=True, indent=1).encode(found.build())
    return json.dumps(json.loads(text), indent=1, sort_keys=True) + "\n"


def _panel(panel: Panel) -> timeseries.Panel:
    legend = (
        common_parts.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
    )
    found = (
        timeseries.Panel()
        .title(panel.title)
        .description(panel.description)
        .datasource(_SOURCE)
        .unit(panel.unit)
        .min(0)
        .span(_WIDTH)
        .height(_HEIGHT)
        .legend(legend)
    )
    if panel.kind == "stacked":
        stacking = common_parts.StackingConfig().mode(common.StackingMode.NORMAL).group("A")
        found = found.stacking(stacking).fill_opacity(40)
    if panel.edge is not None:
        steps = [
            models.Threshold(value=None, color="transparent"),
            models.Threshold(value=panel.edge, color="red"),
        ]
        thresholds = parts.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)
        style = common_parts.GraphThresholdsStyleConfig().mode(common.GraphTresholdsStyleMode.LINE)
        found = found.thresholds(thresholds).thresholds_style(style)
    for query, letter in zip(panel.queries, _letters(), strict=False):
        target = prometheus.Dataquery().ref_id(letter).datasource(_SOURCE)
        found = found.with_target(target.expr(query.expression).legend_format(query.legend))
        if query.colour:
            shades = {"mode": "shades", "fixedColor": query.colour}
            found = found.override_by_query(letter, [models.DynamicConfigValue("color", shades)])
    return found


def _letters() -> Iterator[str]:
    return iter("ABCDEFGH")

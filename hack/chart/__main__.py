"""Generates what of charts/quire has a source elsewhere: `python -m hack.chart [--check]`.

values.yaml ──► values.schema.json, README.md, _generated.tpl ─┐
the packages ─► _generated.tpl, crd-spec.yaml ─────────────────┴─► manifests/install.yaml, by Helm
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from hack.chart.install import update
from hack.chart.parts import crd_spec_text, parts_text
from hack.chart.readme import readme_text
from hack.chart.schema import schema_text
from hack.chart.values import CHART, read_values
from hack.generated import write_or_check
from hack.observability.alerts import index_text, rules_text
from hack.observability.boards import BOARDS
from hack.observability.grafana import dashboard_text

_CHART = Path("charts/quire")


def main() -> int:
    """Write or check; returns the process's exit status."""
    values = read_values((CHART / "values.yaml").read_text())
    files: dict[Path, Callable[[], str]] = {
        _CHART / "files/crd-spec.yaml": crd_spec_text,
        _CHART / "files/alerts.yaml": rules_text,
        _CHART / "templates/_generated.tpl": lambda: parts_text(values),
        _CHART / "values.schema.json": lambda: schema_text(values),
        _CHART / "README.md": lambda: readme_text(values),
        Path("docs/runbooks/README.md"): index_text,
    }
    for board in BOARDS:
        files[_CHART / f"files/dashboards/{board.name}.json"] = partial(dashboard_text, board)
    status = write_or_check("hack.chart", files, "manifests")
    return status or update(is_check="--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())

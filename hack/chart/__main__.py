"""Generates what of charts/quire has a source elsewhere: `python -m hack.chart [--check]`.

values.yaml ──► values.schema.json, README.md ─┐
the packages ─► _generated.tpl, crd-spec.yaml ─┴─► manifests/install.yaml, by Helm
"""

import sys
from pathlib import Path

from hack.chart.install import update
from hack.chart.parts import crd_spec_text, parts_text
from hack.chart.readme import readme_text
from hack.chart.schema import schema_text
from hack.chart.values import CHART, read_values
from hack.generated import write_or_check

_CHART = Path("charts/quire")


def main() -> int:
    """Write or check; returns the process's exit status."""
    values = read_values((CHART / "values.yaml").read_text())
    files = {
        _CHART / "files/crd-spec.yaml": crd_spec_text,
        _CHART / "templates/_generated.tpl": parts_text,
        _CHART / "values.schema.json": lambda: schema_text(values),
        _CHART / "README.md": lambda: readme_text(values),
    }
    status = write_or_check("hack.chart", files, "manifests")
    return status or update(is_check="--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())

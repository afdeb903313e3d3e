"""Generates the reference pages under docs/reference: `python -m hack.reference [--check]`."""

import sys
from pathlib import Path

from hack.benchmarks_page import benchmarks_page, benchmarks_page_zh
from hack.cli_page import cli_page
from hack.gateway_metrics_page import gateway_metrics_page
from hack.gateway_page import gateway_page
from hack.generated import write_or_check
from hack.gpu_figures import README, render_readme
from hack.http_page import http_page
from hack.metrics_page import metrics_page
from quire_engine.config.markdown import reference_page
from quire_operator.planner.network_paths import paths_page
from quire_operator.resource import markdown as resource

PAGES = {
    Path("docs/benchmarks.md"): benchmarks_page,
    Path("docs/benchmarks.zh.md"): benchmarks_page_zh,
    Path("docs/reference/cli.md"): cli_page,
    Path("docs/reference/configuration.md"): reference_page,
    Path("docs/reference/gateway-metrics.md"): gateway_metrics_page,
    Path("docs/reference/gateway.md"): gateway_page,
    Path("docs/reference/http-api.md"): http_page,
    Path("docs/reference/inference-service.md"): resource.reference_page,
    Path("docs/reference/metrics.md"): metrics_page,
    Path("docs/reference/network.md"): paths_page,
    README: render_readme,
}

if __name__ == "__main__":
    sys.exit(write_or_check("hack.reference", PAGES, "docs"))

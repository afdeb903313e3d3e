"""A real Prometheus that reads programs of this machine as the chart's monitors would have it."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import yaml

from tests.api.servers import wait_until
from tests.cluster.operators import free_port

Body = dict[str, Any]
Labels = Mapping[str, str]

_SECONDS = 120
_PAGE = Path(__file__).parents[2] / "docs" / "howto" / "monitoring.md"


def scrape_config(monitor: Body, targets: Mapping[str, Labels]) -> Body:
    """One job: a PodMonitor's own words, with programs in the place of pods.

    Parameters
    ----------
    targets
        Addresses of programs, and for each the labels that its pod would have: those of Kubernetes'
        service discovery, and `pod` and `namespace`, which the Prometheus Operator makes of them.
    """
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    return {
        "job_name": monitor["metadata"]["name"],
        "scrape_interval": "250ms",
        "scrape_timeout": "250ms",
        "metrics_path": endpoint["path"],
        "honor_labels": endpoint.get("honorLabels", False),
        "static_configs": [
            {"targets": [address], "labels": dict(labels)} for address, labels in targets.items()
        ],
        "relabel_configs": _as_written(endpoint.get("relabelings", [])),
        "metric_relabel_configs": _as_written(endpoint.get("metricRelabelings", [])),
    }


def page_job(targets: Mapping[str, Labels]) -> Body:
    """The job of docs/howto/monitoring.md, with programs in the place of pods.

    Parameters
    ----------
    targets
        Addresses of programs, and for each the labels of Kubernetes' service discovery.
    """
    [block] = re.findall(r"```yaml\n(# prometheus.yml\n.*?)```", _PAGE.read_text(), re.DOTALL)
    jobs: list[Body] = yaml.safe_load(block)["scrape_configs"]
    [job] = jobs
    assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    static = [{"targets": [address], "labels": dict(one)} for address, one in targets.items()]
    often: Body = {"scrape_interval": "250ms", "scrape_timeout": "250ms"}
    return job | often | {"static_configs": static}


class Prometheus:
    """The program, ready when the block begins."""

    def __init__(self, program: Path, folder: Path, jobs: Sequence[Body], rules: Path) -> None:
        config = folder / "prometheus.yml"
        content = {
            "global": {"evaluation_interval": "500ms"},
            "rule_files": [str(rules)],
            "scrape_configs": list(jobs),
        }
        config.write_text(yaml.safe_dump(content))
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._log = folder / "prometheus.log"
        flags = (f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}")
        with self._log.open("ab") as file:
            self._process = subprocess.Popen(
                [program, *flags, f"--web.listen-address=127.0.0.1:{port}"],
                env=os.environ | {"GOMAXPROCS": "1"},
                stdout=file,
                stderr=file,
            )

    def __enter__(self) -> Self:
        try:
            wait_until(self._is_ready, seconds=_SECONDS)
        except AssertionError:
            self._kill()
            raise AssertionError(self._log.read_text()) from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._kill()

    def ask(self, expression: str) -> list[Body]:
        """The series that an expression gives now."""
        answer = self._get("/api/v1/query", query=expression)
        assert answer["status"] == "success", (expression, answer)
        found: list[Body] = answer["data"]["result"]
        return found

    def rules(self) -> list[Body]:
        """The rules, with what became of them."""
        groups = self._get("/api/v1/rules")["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def _get(self, path: str, **parameters: str) -> Body:
        found: Body = httpx.get(self.url + path, params=parameters, timeout=60).json()
        return found

    def _is_ready(self) -> bool:
        assert self._process.poll() is None
        try:
            return httpx.get(f"{self.url}/-/ready", timeout=60).status_code == 200
        except httpx.TransportError:
            return False

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()


def _as_written(relabelings: Sequence[Body]) -> list[Body]:
    """Relabelings with the names that Prometheus' own file has for their fields."""
    return [
        {
            re.sub(r"[A-Z]", lambda big: f"_{big[0].lower()}", name): value
            for name, value in one.items()
        }
        for one in relabelings
    ]

"""Helm, with the chart and a cluster of tests."""

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from hack.chart.install import NAMESPACE, RELEASE
from hack.chart.values import CHART

Body = dict[str, Any]

VALUES = sorted((CHART / "ci").glob("*-values.yaml"))
_SECONDS = 120


class Helm:
    """The program, as the administrator of a cluster, or without one."""

    def __init__(
        self,
        program: Path,
        folder: Path,
        kubeconfig: Path | None = None,
        namespace: str = NAMESPACE,
    ) -> None:
        self._program = program
        self._namespace = namespace
        self._variables = {f"HELM_{name}_HOME": str(folder) for name in ("CACHE", "CONFIG", "DATA")}
        self._variables["KUBECONFIG"] = str(kubeconfig or os.devnull)

    def run(self, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
        """Run it, whatever comes of it."""
        return subprocess.run(
            [self._program, *arguments],
            env=os.environ | self._variables,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )

    def call(self, *arguments: str | Path) -> str:
        """What it prints; it must succeed."""
        ran = self.run(*arguments)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def install(
        self, *flags: str, release: str = RELEASE, namespace: str = "", chart: Path = CHART
    ) -> str:
        """Install a chart, or upgrade to it or to other values."""
        return self.call(*_install(release, namespace or self._namespace, chart), *flags)

    def refusal(self, *flags: str, release: str = RELEASE, namespace: str = "") -> str:
        """Why it does not install the chart."""
        ran = self.run(*_install(release, namespace or self._namespace, CHART), *flags)
        assert ran.returncode != 0, ran.stdout
        return ran.stderr

    def uninstall(self, release: str = RELEASE, namespace: str = "") -> str:
        """Take it out again."""
        where = f"--namespace={namespace or self._namespace}"
        return self.call("uninstall", release, where, "--wait")

    def render(self, *flags: str) -> str:
        """The chart's objects as a text."""
        where = (RELEASE, CHART, f"--namespace={NAMESPACE}", "--kube-version=1.37.0")
        return self.call("template", *where, *flags)

    def objects(self, *flags: str) -> list[Body]:
        """The chart's objects."""
        return [one for one in yaml.safe_load_all(self.render(*flags)) if one]


def flags_of(objects: list[Body], component: str) -> list[str]:
    """The flags that a component is started with."""
    [deployment] = [
        one
        for one in objects
        if one["kind"] == "Deployment" and one["metadata"]["name"].endswith(f"-{component}")
    ]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    flags: list[str] = container["args"]
    return flags


def _install(release: str, namespace: str, chart: Path) -> tuple[str | Path, ...]:
    where = (f"--namespace={namespace}", "--create-namespace")
    return ("upgrade", "--install", release, chart, *where)

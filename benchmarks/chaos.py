"""Ten minutes of load on real nodes while what serves it is killed, cut off, replaced and scaled.

    python -m benchmarks.chaos --minutes 10

    OpenAI's client, each request once ── Envoy ── gateway x 2 ── L4, A100, H100 (simulated engines)

The chart as it is installed, on three nodes of `hack.cluster`. At the end each engine's blocks are
audited: none is held or reserved, and all are free. What is measured is what clients see: requests,
errors by kind, streams that broke off.
"""

import argparse
import json
import os
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path

from benchmarks.chaos_audit import Audit, audit
from benchmarks.chaos_faults import Stage, faults
from benchmarks.chaos_report import Window, windows_of, write_markdown
from hack.cluster.binaries import announce, provide_programs
from hack.cluster.cluster import Cluster
from hack.cluster.config import Size
from hack.cluster.quire_images import all_archives
from hack.cluster.temporary import temporary_cluster
from tests.cluster.helm import Helm
from tests.cluster.operators import SYSTEM
from tests.nodes.installing import HOST, WAIT, apply_mixed, make_namespace
from tests.nodes.outside import streamed, way_in
from tests.nodes.services import A100, Body, Service, simulated
from tests.nodes.streams import Load, Outcome

_NUM_NODES = 3
_PLACE = "chaos"
_STEADY, _WAVE = 4, 8
_READY_SECONDS = 90.0
_QUESTION: Body = {
    "model": "llama3-8b",
    "messages": [{"role": "user", "content": "Once upon a time"}],
    "max_tokens": 60,
}
SPEC: Body = {
    "engine": {"maxNumSeqs": 4, "maxNumBatchedTokens": 2048, "drainSeconds": 60},
    "accelerators": [simulated(A100, maxReplicas=2), {"name": "l4", "maxReplicas": 2}],
    "scaling": {
        "minReplicas": 2,
        "maxReplicas": 6,
        "slo": {"timeToFirstToken": "20s"},
        "stabilization": {"down": "45s"},
    },
    "admission": {"maxQueueSeconds": 60},
}


def main() -> None:
    """Run it, and keep what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    archives = all_archives()
    name = f"chaos-{os.getpid()}"
    with ExitStack() as stack:
        cluster = stack.enter_context(temporary_cluster(name, Size.NODES, _NUM_NODES))
        for archive in archives:
            cluster.real.load_image(archive)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        service = _install(cluster, folder)
        found, windows = _run(cluster, service, options.minutes * 60)
    report = {
        "minutes": options.minutes,
        "requests": sum(one.num_requests for one in windows),
        "cut_streams": sum(one.num_cut for one in windows),
        "errors": sum(sum(one.errors.values()) for one in windows),
        "windows": [asdict(one) for one in windows],
        "audit": asdict(found),
    }
    text = write_markdown(windows, found, options.minutes)
    print(text)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    if options.markdown:
        options.markdown.write_text(text)


def _install(cluster: Cluster, folder: Path) -> Service:
    make_namespace(cluster, SYSTEM)
    make_namespace(cluster, _PLACE)
    helm = Helm(provide_programs(["helm"])["helm"], folder, cluster.kubeconfig, SYSTEM)
    helm.install(*WAIT, "--set=gateway.drainSeconds=60")
    service = apply_mixed(cluster, _PLACE, **SPEC)
    streamed(cluster, HOST, "llama3-8b")
    return service


def _run(cluster: Cluster, service: Service, seconds: float) -> tuple[Audit, list[Window]]:
    """Load for so long, with a fault now and then, and waves of more load."""
    began = time.monotonic()
    marks: list[tuple[float, str]] = [(began, "nothing yet")]
    stage = Stage(cluster, service, _PLACE)
    steps = faults()
    outcomes: list[Outcome] = []
    with Load(way_in(cluster, HOST), _QUESTION, num_streams=_STEADY) as steady:
        wave: Load | None = None
        for number, step in enumerate(steps):
            _sleep_until(began + seconds * (number + 1) / (len(steps) + 1))
            is_high = number % 4 >= 2
            if is_high and wave is None:
                wave = Load(way_in(cluster, HOST), _QUESTION, num_streams=_WAVE)
                wave.begin()
            elif not is_high and wave is not None:
                outcomes += wave.finish()
                wave = None
            announce(f"{time.monotonic() - began:5.0f} s: {step.name}")
            marks.append((time.monotonic(), step.name + (", under more load" if is_high else "")))
            step.act(stage)
        _sleep_until(began + seconds)
        if wave is not None:
            outcomes += wave.finish()
    outcomes += steady.outcomes
    stage.mend()
    with suppress(AssertionError):  # the report says that it is not
        service.wait(
            lambda: service.condition("Ready")["status"] == "True", "it is ready", _READY_SECONDS
        )
    return audit(cluster, service), windows_of(marks, outcomes, began)


def _sleep_until(moment: float) -> None:
    time.sleep(max(moment - time.monotonic(), 0.0))


if __name__ == "__main__":
    main()

"""The operator with hundreds of services, on a real API server with kwok's nodes.

`python -m benchmarks.operator_scale [--services 500] [--json FILE]` makes the services before a
fresh operator starts, and measures how long it takes until each has its Deployment and status, and
until each is Ready; what the operator then costs in a quiet time, and what it writes (by the API
server's audit log); and how long a changed spec takes to reach its Deployment.

With `--scaling on`, which is as it is in production, services are `Auto`, and the operator decides
them every five seconds, from what a gateway tells of all of them, and one whose spec has changed at
once; with `off` they are `External`. The file has both, each as it was measured last.

It runs in a network namespace of its own, where all addresses of kwok's pods are the machine
itself: one responder there answers `/state` for every pod, with what a simulated engine said, and
`/fleet` for the gateway's. Needs root.
"""

import argparse
import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from benchmarks.operator_scale_fleet import Fleet, connect, responder, service_of, watch_objects
from hack.cluster.cluster import Cluster
from hack.cluster.config import Size
from hack.cluster.control_plane import AUDIT_LOG, AUDIT_POLICY
from hack.cluster.folders import cluster_folder
from hack.cluster.temporary import temporary_cluster
from quire_operator.planner.names import MANAGER, ROLE_LABEL
from tests.cluster.operators import SYSTEM, RunningOperator, install
from tests.cluster.services import Body

_INSIDE = "QUIRE_BENCHMARK_NAMESPACE"
_POD_ADDRESSES = "10.0.0.0/8"
_RESYNC_SECONDS = 120
"""So that a quiet time has one in it: all is looked at anew."""
_PODS_PER_NODE = 100
_QIS = "/apis/serving.quire.dev/v1alpha1/inferenceservices"
_DEPLOYMENTS = "/apis/apps/v1/deployments"
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--services", type=int, default=500)
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--quiet-seconds", type=float, default=120)
    parser.add_argument("--scaling", choices=("on", "off"), default="on")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if _INSIDE not in os.environ:
        _enter_namespace()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "route", "add", "local", _POD_ADDRESSES, "dev", "lo"], check=True)
    result = measure(
        arguments.services,
        arguments.changes,
        arguments.quiet_seconds,
        is_scaling=arguments.scaling == "on",
    )
    print(json.dumps(result, indent=1))
    if arguments.json:
        known = json.loads(arguments.json.read_text()) if arguments.json.exists() else {}
        known[f"scaling {arguments.scaling}"] = result
        arguments.json.write_text(json.dumps(known, indent=1) + "\n")


def _enter_namespace() -> None:
    os.environ[_INSIDE] = "1"
    unshare = shutil.which("unshare") or "unshare"
    os.execv(unshare, [unshare, "--net", "--", sys.executable, *sys.orig_argv[1:]])


def measure(
    num_services: int, num_changes: int, quiet_seconds: float, *, is_scaling: bool
) -> dict[str, Any]:
    """All figures."""
    name = f"bench-{os.getpid()}"
    folder = cluster_folder("state") / name
    folder.mkdir(parents=True, mode=0o700)
    (folder / AUDIT_POLICY).write_text(json.dumps(_audit_policy()))
    nodes = -(-num_services // _PODS_PER_NODE)
    fleet = Fleet(num_services)
    with (
        responder(fleet) as num_asked,
        temporary_cluster(name, Size.KWOK, nodes) as cluster,
    ):
        kubeconfig = install(cluster)
        threading.Thread(target=fleet.follow, args=(cluster,), daemon=True).start()
        cluster.api.apply(_gateway())
        objects = [service_of(index, is_scaling=is_scaling) for index in range(num_services)]
        for start in range(0, num_services, 50):
            cluster.api.apply(*objects[start : start + 50])
        began = time.monotonic()
        flags = (
            "--log-format=text",
            f"--resync-seconds={_RESYNC_SECONDS}",
            f"--gateway-namespace={SYSTEM}",
        )
        log = cluster.folder / "logs" / "operator.log"
        with RunningOperator(kubeconfig, log, *flags) as operator, connect(cluster) as client:
            pid = operator.process.pid
            reconciled = _wait(began, lambda: _num_said(client) == num_services)
            startup_cpu = _cpu_seconds(pid)
            ready = _wait(began, lambda: _num_ready(client) == num_services)
            _wait_until_quiet(cluster)
            quiet = _measure_quiet(cluster, pid, quiet_seconds, num_asked)
            changes = _measure_changes(cluster, client, num_changes, is_scaling=is_scaling)
            return {
                "services": num_services,
                "scaling": "on" if is_scaling else "off",
                "machine": f"{os.cpu_count()} cores, {platform.processor() or platform.machine()}",
                "load_average": os.getloadavg(),
                "seconds_until_reconciled": round(reconciled, 2),
                "operator_cpu_seconds_until_reconciled": round(startup_cpu, 2),
                "seconds_until_all_ready": round(ready, 2),
                **quiet,
                **_decisions(operator),
                "spec_to_deployment_seconds": changes,
                "peak_memory_mib": _memory_mib(pid, "VmHWM"),
            }


def _decisions(operator: RunningOperator) -> dict[str, float]:
    """How many times all services were decided, and how long that took on the mean."""
    name = "quire_operator_scaling_decide_seconds"
    number = operator.metric(f"{name}_count")
    return {
        "decisions": number,
        "decide_seconds": round(operator.metric(f"{name}_sum") / max(number, 1.0), 4),
    }


def _gateway() -> Body:
    """A pod of the gateway, ready as far as kwok says: without one no service is."""
    metadata = {"namespace": SYSTEM, "name": "gateway", "labels": {ROLE_LABEL: "gateway"}}
    container = {"name": "main", "image": "localhost/none:1"}
    spec = {"containers": [container], "tolerations": [{"operator": "Exists"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _audit_policy() -> Body:
    writes = ["create", "update", "patch", "delete", "deletecollection"]
    user = f"system:serviceaccount:{SYSTEM}:{MANAGER}"
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": [user], "verbs": writes}, {"level": "None"}],
    }


def _items(client: httpx.Client) -> list[Body]:
    found: list[Body] = client.get(_QIS).raise_for_status().json()["items"]
    return found


def _num_said(client: httpx.Client) -> int:
    """Services whose Deployment was made and whose status tells of the newest spec."""
    return sum("observedGeneration" in one.get("status", {}) for one in _items(client))


def _num_ready(client: httpx.Client) -> int:
    return sum(
        condition["type"] == "Ready" and condition["status"] == "True"
        for one in _items(client)
        for condition in one.get("status", {}).get("conditions", ())
    )


def _wait(began: float, condition: Callable[[], bool], most_seconds: float = 600) -> float:
    while not condition():
        if time.monotonic() > began + most_seconds:
            raise SystemExit(f"not so after {most_seconds} s")
        time.sleep(0.25)
    return time.monotonic() - began


def _writes(cluster: Cluster) -> Counter[str]:
    """What the operator has written so far: verbs and resources."""
    found: Counter[str] = Counter()
    for line in (cluster.folder / AUDIT_LOG).read_text().splitlines():
        entry = json.loads(line)
        place = entry.get("objectRef", {})
        part = f"/{place['subresource']}" if "subresource" in place else ""
        found[f"{entry['verb']} {place.get('resource')}{part}"] += 1
    return found


def _without_leases(writes: Counter[str]) -> int:
    return sum(number for what, number in writes.items() if not what.endswith(" leases"))


def _wait_until_quiet(cluster: Cluster, rest_seconds: float = 20) -> None:
    """Until nothing but Leases was written for a while."""
    before, since = -1, time.monotonic()
    while time.monotonic() - since < rest_seconds:
        if (now := _without_leases(_writes(cluster))) != before:
            before, since = now, time.monotonic()
        time.sleep(1)


def _measure_quiet(
    cluster: Cluster, pid: int, seconds: float, num_asked: Counter[str]
) -> dict[str, Any]:
    """What it costs while nothing happens but polls of engines."""
    cpu, writes, asked = _cpu_seconds(pid), _writes(cluster), num_asked.total()
    began = time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - began
    return {
        "quiet_seconds": round(passed, 1),
        "quiet_cpu_percent_of_a_core": round(100 * (_cpu_seconds(pid) - cpu) / passed, 2),
        "quiet_memory_mib": _memory_mib(pid, "VmRSS"),
        "quiet_polls_per_second": round((num_asked.total() - asked) / passed, 1),
        "quiet_writes": dict(_writes(cluster) - writes),
        "writes_until_quiet": dict(writes),
    }


def _measure_changes(
    cluster: Cluster, client: httpx.Client, number: int, *, is_scaling: bool
) -> dict[str, float]:
    """From the API server's answer to a changed spec to the Deployment's change, by its watch.

    Where scaling is on, a decision lies between.
    """
    version = client.get(_DEPLOYMENTS).json()["metadata"]["resourceVersion"]
    seen: dict[tuple[str, int], float] = {}
    arrived = threading.Condition()

    def watch() -> None:
        with (
            contextlib.suppress(httpx.TransportError),  # the cluster's end
            connect(cluster) as own,
        ):
            for _, body in watch_objects(own, _DEPLOYMENTS, resourceVersion=version):
                with arrived:
                    key = (body["metadata"]["name"], body["spec"]["replicas"])
                    seen.setdefault(key, time.monotonic())
                    arrived.notify_all()

    threading.Thread(target=watch, daemon=True).start()
    services = [one["metadata"]["name"] for one in _items(client)]
    took = []
    for index in range(number):
        name, replicas = services[index % len(services)], 2 + index // len(services)
        path = _QIS.replace("inferenceservices", f"namespaces/default/inferenceservices/{name}")
        spec = {"scaling": {"minReplicas": replicas}} if is_scaling else {"replicas": replicas}
        patch = json.dumps({"spec": spec})
        kind = {"content-type": "application/merge-patch+json"}
        client.patch(path, content=patch, headers=kind).raise_for_status()
        began = time.monotonic()
        key = (f"{name}-cpu", replicas)
        with arrived:
            if not arrived.wait_for(lambda key=key: key in seen, timeout=60):  # type: ignore[misc]
                raise SystemExit(f"{name} was not changed within a minute")
        took.append(max(seen[key] - began, 0.0))
    took.sort()
    return {
        "changes": number,
        "p50": round(statistics.median(took), 4),
        "p99": round(took[min(int(0.99 * number), number - 1)], 4),
        "most": round(took[-1], 4),
    }


def _cpu_seconds(pid: int) -> float:
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / _TICKS_PER_SECOND


def _memory_mib(pid: int, field: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return round(int(line.split()[1]) / 1024, 1)
    raise SystemExit(f"/proc tells nothing of {field}")


if __name__ == "__main__":
    main()

"""How the gateway and other routers are started in front of one engine."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

Command = Callable[[int, int, Path], tuple[str, ...]]
"""Of the engine's port, an own port and a folder for files."""


def gateway(engine: int, port: int, folder: Path, *, workers: int = 1) -> tuple[str, ...]:
    path = folder / "routing.json"
    path.write_text(json.dumps(document(engine)))
    flags = ("--routing", str(path), "--port", str(port), "--management-port", str(port + 1))
    return sys.executable, "-m", "quire_gateway", *flags, "--workers", str(workers)


def vllm_router(program: str, policy: str, engine: int, port: int, _: Path) -> tuple[str, ...]:
    return (
        *(program, "--host", "127.0.0.1", "--port", str(port), "--policy", policy),
        *("--worker-urls", f"http://127.0.0.1:{engine}"),
        *("--prometheus-port", str(port + 1), "--log-level", "error"),
    )


def smg(program: str, engine: int, port: int, _: Path) -> tuple[str, ...]:
    return (
        *(program, "launch", "--host", "127.0.0.1", "--port", str(port)),
        *("--worker-urls", f"http://127.0.0.1:{engine}"),
        *("--prometheus-port", str(port + 1), "--log-level", "error"),
    )


def litellm(program: str, engine: int, port: int, folder: Path) -> tuple[str, ...]:
    path = folder / "litellm.yaml"
    place = {"api_base": f"http://127.0.0.1:{engine}/v1", "api_key": "none"}
    models = [{"model_name": "m", "litellm_params": {"model": "text-completion-openai/m"} | place}]
    path.write_text(json.dumps({"model_list": models}))
    return program, "--config", str(path), "--host", "127.0.0.1", "--port", str(port)


def envoy(program: str, engine: int, port: int, folder: Path) -> tuple[str, ...]:
    path = folder / "envoy.json"
    path.write_text(json.dumps(_envoy_document(engine, port)))
    quiet = ("--log-level", "error", "--use-dynamic-base-id")
    return program, "-c", str(path), "--concurrency", "1", *quiet


def free_port() -> int:
    """Return a free port with another behind it, below those that the system gives away."""
    for port in range(21000, 30000, 2):
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
    raise SystemExit("no port is free")


@contextmanager
def program(
    *command: str, core: int | None = None, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Run a program, on one core if one is named."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | (env or {}),
        preexec_fn=None if core is None else partial(os.sched_setaffinity, 0, {core}),
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def document(*ports: int) -> dict[str, Any]:
    """A routing document of engines on these ports."""
    limits = {"max_queue_seconds": 30, "max_waiting_requests": 1000}
    return {
        "schema_version": 1,
        "namespace": "default",
        "name": "m",
        "model_names": ["m"],
        "thresholds": {"admission": 0.95, "background": 0.8} | limits,
        "engines": [{"address": f"127.0.0.1:{port}"} for port in ports],
    }


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _envoy_document(engine: int, port: int) -> dict[str, Any]:
    types = "type.googleapis.com/envoy.extensions.filters"
    routes = [{"match": {"prefix": "/"}, "route": {"cluster": "engine", "timeout": "0s"}}]
    manager = {
        "@type": f"{types}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "http",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{types}.http.router.v3.Router"},
            }
        ],
    }
    chain = {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}
    endpoint = {"endpoint": {"address": _address(engine)}}
    cluster = {
        "name": "engine",
        "type": "STATIC",
        "connect_timeout": "2s",
        "circuit_breakers": {"thresholds": [{"max_connections": 9999, "max_requests": 9999}]},
        "load_assignment": {
            "cluster_name": "engine",
            "endpoints": [{"lb_endpoints": [endpoint]}],
        },
    }
    listener = {
        "name": "clients",
        "address": _address(port),
        "filter_chains": [{"filters": [chain]}],
    }
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}

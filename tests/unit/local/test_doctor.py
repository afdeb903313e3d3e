"""What `quire doctor` says of a machine."""

import json
import socket
from pathlib import Path

import pytest

from quire_local.cluster.pods import refusal_of
from quire_local.doctor.command import main
from quire_local.doctor.finding import fail, ok, warn, worst
from quire_local.doctor.installation import fields
from quire_local.doctor.machine import check_cache, check_port, check_processor, check_python
from quire_local.doctor.services import check_services


def test_an_old_python_fails_and_a_new_one_does_not() -> None:
    assert check_python((3, 10)).level == "fail"
    assert check_python((3, 11)).level == "ok"


def test_a_processor_without_avx2_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    found = check_processor({"sse4_2", "fma"})
    assert found.level == "warn"
    assert "avx2, f16c" in found.says


def test_a_port_that_is_taken_says_how_to_take_another() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = check_port(port, "the API")
        assert found.level == "warn"
        assert "a program listens there already" in found.says
        assert "--page-port 0" in found.fix
    assert check_port(port, "the API").level == "ok"


def test_a_cache_that_cannot_be_written_fails(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    [found] = check_cache({"QUIRE_CACHE": str(tmp_path / "file" / "below")})
    assert found.level == "fail"
    assert "export QUIRE_CACHE=" in found.fix


def test_a_cache_that_can_be_written_tells_what_is_left(tmp_path: Path) -> None:
    [found] = check_cache({"QUIRE_CACHE": str(tmp_path)})
    assert str(tmp_path) in found.says
    assert list(tmp_path.iterdir()) == []


def test_the_worst_finding_makes_the_exit_status() -> None:
    assert worst([]) == worst([ok("a", "b")]) == "ok"
    assert worst([ok("a", "b"), warn("a", "b", "c")]) == "warn"
    assert worst([warn("a", "b", "c"), fail("a", "b", "c"), ok("a", "b")]) == "fail"


def test_fields_of_a_schema_are_found_in_lists_too() -> None:
    inner = {"properties": {"c": {"type": "string"}}}
    schema = {"properties": {"a": {"items": inner}, "b": inner}}
    assert fields(schema) == {"a", "a[].c", "b", "b.c"}


@pytest.mark.parametrize("text", ["{", "[1, 2]", "just words", "clusters: 5\n"])
def test_what_is_no_kubeconfig_is_one_finding(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    assert main(["--only", "cluster", "--kubeconfig", str(path), "--json"]) == 1
    [found] = json.loads(capsys.readouterr().out)["findings"]
    assert found["check"] == "api server"
    assert "say --kubeconfig" in found["says"]


def test_a_file_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "none"
    assert main(["--only", "cluster", "--kubeconfig", str(path)]) == 1
    assert f"there is no file {path}; set KUBECONFIG" in capsys.readouterr().out


def test_services_that_are_not_heard_for_one_reason_are_one_warning() -> None:
    def service(name: str, why: str) -> dict[str, object]:
        ready = {"type": "Ready", "status": "True"}
        fresh = {"type": "MetricsFresh", "status": "False", "reason": "NotHeard", "message": why}
        return {
            "metadata": {"namespace": "default", "name": name},
            "status": {"conditions": [ready, fresh]},
        }

    silent = [service("a", "no gateway"), service("b", "no gateway"), service("c", "no engine")]
    told = [one.says for one in check_services(silent) if one.check == "metrics"]
    assert told == [
        "default/a and 1 more: NotHeard: no gateway",
        "default/c: NotHeard: no engine",
    ]


def test_of_hundreds_of_services_each_trouble_is_one_line() -> None:
    def service(number: int, reason: str, status: str = "False") -> dict[str, object]:
        ready = {"type": "Ready", "status": status, "reason": reason, "message": "why"}
        name = f"{reason.lower()}-{number}"
        return {
            "metadata": {"namespace": "default", "name": name},
            "status": {"conditions": [ready]},
        }

    def said(services: list[dict[str, object]]) -> list[tuple[str, str]]:
        return [(one.level, one.says) for one in check_services(services)]

    well = [service(number, "Serving", "True") for number in range(100)]
    stuck = [service(number, "NoGPUNode") for number in range(100)]
    idle = [service(number, "Suspended") for number in range(100)]
    assert said([*stuck, *well, *idle, service(0, "ImagePull")]) == [
        ("ok", "default/serving-0 and 99 more: ready"),
        ("ok", "default/suspended-0 and 99 more: suspended, as its spec asks"),
        ("warn", "default/nogpunode-0 and 99 more: not ready: NoGPUNode: why"),
        ("warn", "default/imagepull-0: not ready: ImagePull: why"),
    ]
    assert said(well[:2]) == [("ok", f"default/serving-{number} is ready") for number in range(2)]


def test_a_refused_port_forward_is_told_without_its_headers() -> None:
    raw = "Handshake status 403 Forbidden -+-+- {'audit-id': 'x'} -+-+- b'{\"kind\": 1}'"
    assert refusal_of(raw) == "Handshake status 403 Forbidden"
    assert refusal_of("") == "it cannot be opened"


def test_without_a_kubeconfig_the_machine_alone_is_checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QUIRE_CACHE", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    status = main(["--json"])
    found = json.loads(capsys.readouterr().out)
    assert status == (1 if found["level"] == "fail" else 0)
    assert [one["says"] for one in found["findings"] if one["check"] == "cluster"] == [
        "no kubeconfig: nothing of a cluster was checked"
    ]


def test_findings_are_lines_with_the_fix_below(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("QUIRE_CACHE", str(tmp_path / "file"))
    assert main(["--only=machine"]) == 1
    lines = capsys.readouterr().out.splitlines()
    [number] = [i for i, line in enumerate(lines) if line.startswith("fail  cache: ")]
    assert lines[number + 1].startswith("      -> export QUIRE_CACHE=")
    assert lines[-1].endswith("1 failed")
    assert "\x1b" not in "".join(lines)


def test_a_cluster_that_nobody_knows_is_said_in_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(["--only=cluster"]) == 1
    said = capsys.readouterr().out
    assert "no cluster is known: there is no kubeconfig, and this is no pod" in said

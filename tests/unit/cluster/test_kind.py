"""Clusters by kind, with programs of ours in the place of Docker, kind and kubectl."""

import json
from pathlib import Path

import pytest

from hack.cluster.gpu_nodes import model_of
from hack.cluster.kind import kind_config, main

_PROGRAM = """\
#!/bin/sh
echo "$(basename "$0") $*" >> "$CALLS"
case "$(basename "$0") $1 $2" in
"kind get clusters") cat "$CALLS.made" 2>/dev/null || true ;;
"kind create cluster") cat > "$CALLS.config"; echo quire > "$CALLS.made" ;;
"docker info "*) if [ -e "$CALLS.stopped" ]; then exit 1; fi ;;
esac
case "$(basename "$0") $*" in
"kubectl "*" get nodes "*) printf 'node/quire-control-plane\\nnode/quire-worker\\n' ;;
esac
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """File with the calls of the three programs, which are all that is on PATH but a shell's."""
    for name in ("docker", "kind", "kubectl"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(_PROGRAM)
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("QUIRE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "calls"


def test_up_makes_a_cluster_once_with_our_labels(
    calls: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["up", "--nodes", "2"]) == main(["up", "--nodes", "2"]) == 0
    lines = calls.read_text().splitlines()
    assert sum(line.startswith("kind create cluster") for line in lines) == 1
    config = json.loads(calls.with_name("calls.config").read_text())
    assert config == kind_config(2)
    assert [node.get("labels") for node in config["nodes"]] == [
        None,
        model_of(1).labels(),
        model_of(2).labels(),
    ]
    path = tmp_path / "cache" / "cluster" / "state" / "kind.kubeconfig"
    assert capsys.readouterr().out == f"export KUBECONFIG={path}\n" * 2


def test_workers_say_that_they_have_gpus_and_the_control_plane_does_not(calls: Path) -> None:
    main(["up"])
    patched = [line for line in calls.read_text().splitlines() if " patch " in line]
    assert len(patched) == 1
    assert "node/quire-worker" in patched[0]
    assert '"nvidia.com/gpu": "2"' in patched[0]


def test_down_removes_it(calls: Path) -> None:
    assert main(["down"]) == 0
    assert "kind delete cluster --name=quire" in calls.read_text()


@pytest.mark.parametrize("program", ["docker", "kind", "kubectl"])
def test_a_missing_program_is_named_with_where_to_get_it(
    calls: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    program: str,
) -> None:
    calls.with_name("bin").joinpath(program).unlink()
    monkeypatch.setenv("PATH", str(calls.with_name("bin")))
    assert main(["up"]) == 1
    message = capsys.readouterr().err
    assert f"{program} is not installed: see https://" in message
    assert "make cluster-up" in message


def test_a_docker_that_does_not_answer_is_said_to_be_stopped(
    calls: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls.with_name("calls.stopped").touch()
    assert main(["up"]) == 1
    assert "Docker's engine does not answer: start it" in capsys.readouterr().err

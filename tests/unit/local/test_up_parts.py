"""Parts of `quire up` that need no process."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from quire_engine.config.flags import FlagParser, add_setting_flags, config_from
from quire_engine.errors import ConfigError
from quire_local.up.engine_command import (
    CommandError,
    EngineCommand,
    Surroundings,
    claim_of_template,
    command_of,
)
from quire_local.up.folder import run_folder, write_private
from quire_local.up.inventory import Claim, Inventory, parse_inventory
from quire_local.up.resource_file import FileError
from quire_local.up.watching import WatchedFile
from quire_operator.planner.engine_pod import pod_template
from quire_operator.planner.settings import PlannerSettings
from quire_operator.resource.reading import read
from tests.cluster.services import Body, service

L4 = Claim(products=("NVIDIA-L4",), count=1)
QWEN: Body = {"model": {"source": "hf://Qwen/Qwen3-8B@main"}}


def template(**spec: Any) -> Mapping[str, Any]:
    read_service = read(service(**spec))
    accelerator = read_service.spec.accelerators[0]
    return pod_template(read_service, accelerator, PlannerSettings(engine_image=""))


def command(node: str = "simulated-l4", claims: Any = None, **spec: Any) -> EngineCommand:
    around = Surroundings(
        live_config=Path("/run/live.json"),
        internal_tokens=Path("/run/tokens"),
        hub_token=Path("/run/hub-token"),
        claims=claims or {},
        secrets={("default", "s"): {"k": b"v"}},
        config_maps={},
        namespace="default",
    )
    return command_of(template(**spec), around, node=node, port=4321)


class TestCommand:
    def test_the_flags_are_the_pods_but_for_what_a_process_has_elsewhere(self) -> None:
        flags = command(**QWEN, engine={"maxNumSeqs": 7, "extraArgs": ["--seed=5"]}).flags
        parser = FlagParser(prog="test", description="")
        add_setting_flags(parser)
        settings = [flag for flag in flags if not flag.startswith("--config=")]
        config = config_from(parser.parse_known(settings), {})
        assert (config.server.host, config.server.port) == ("127.0.0.1", 4321)
        assert (config.executor.simulate, config.executor.model_shape) == ("l4", "qwen3-8b")
        assert (config.scheduler.max_num_seqs, config.executor.seed) == (7, 5)
        assert config.access.internal_token_file == "/run/tokens"
        assert "--config=/run/live.json" in flags

    def test_nothing_of_a_pod_is_left(self) -> None:
        token = {"source": "hf://Qwen/Qwen3-8B", "tokenSecretRef": {"name": "t"}}
        found = command(model=token)
        assert not [flag for flag in found.flags if "/etc/quire" in flag or "0.0.0.0" in flag]
        assert "--hf-token-file=/run/hub-token" in found.flags
        assert not {"HOME", "QUIRE_CACHE"} & set(found.variables)

    def test_a_cpu_computes(self) -> None:
        found = command(node="", **QWEN, accelerators=[{"name": "cpu"}])
        assert "--device=cpu" in found.flags
        assert not [flag for flag in found.flags if flag.startswith("--simulate")]

    def test_a_simulation_that_is_asked_for_stays_as_it_is(self) -> None:
        simulate = {"gpu": "h100", "modelShape": "llama3-8b"}
        found = command(accelerators=[{"name": "l4", "products": ["a"], "simulate": simulate}])
        assert "--simulate=h100" in found.flags
        assert "--model-shape=llama3-8b" in found.flags

    def test_a_model_of_unknown_size_cannot_be_simulated(self) -> None:
        with pytest.raises(CommandError, match=r"simulate: \{gpu: l4, modelShape"):
            command()

    def test_a_claim_is_a_folder(self, tmp_path: Path) -> None:
        source = {"model": {"source": "pvc://models/a/b.gguf"}, "accelerators": [{"name": "cpu"}]}
        found = command(node="", claims={"models": tmp_path}, **source)
        assert f"--source={tmp_path}/a/b.gguf" in found.flags
        with pytest.raises(CommandError, match="--claim models=FOLDER"):
            command(node="", **source)

    def test_variables_come_from_the_secrets_of_the_file(self) -> None:
        def with_variable(**variable: Any) -> EngineCommand:
            cpu = {"name": "cpu", "pod": {"env": [{"name": "A", **variable}]}}
            return command(node="", accelerators=[cpu])

        found = with_variable(valueFrom={"secretKeyRef": {"name": "s", "key": "k"}})
        assert found.variables["A"] == "v"
        assert with_variable(value="w").variables["A"] == "w"
        absent = {"name": "s", "key": "other"}
        with pytest.raises(CommandError, match="there is no Secret s with other"):
            with_variable(valueFrom={"secretKeyRef": absent})
        optional = {"secretKeyRef": absent | {"optional": True}}
        assert "A" not in with_variable(valueFrom=optional).variables
        with pytest.raises(CommandError, match="only secretKeyRef"):
            with_variable(valueFrom={"fieldRef": {"fieldPath": "x"}})

    def test_a_pod_claims_the_gpus_of_its_accelerator(self) -> None:
        two = {"name": "l4", "products": ["NVIDIA-L4", "Tesla-T4"], "count": 2}
        found = claim_of_template(template(accelerators=[two]))
        assert found == Claim(products=("NVIDIA-L4", "Tesla-T4"), count=2)
        assert claim_of_template(template(accelerators=[{"name": "cpu"}])).count == 0


class TestInventory:
    def test_it_has_what_is_said(self) -> None:
        assert parse_inventory("l4=2, H100=1") == {"l4": 2, "h100": 1}
        assert parse_inventory("NVIDIA-L4=3") == {"l4": 3}

    @pytest.mark.parametrize("text", ["", "l4", "l4=0", "l4=x", "l4=65", "l4=1,NVIDIA-L4=1", "x=1"])
    def test_what_makes_no_sense_is_refused(self, text: str) -> None:
        with pytest.raises(ConfigError):
            parse_inventory(text)

    def test_gpus_are_given_until_they_are_used_up(self) -> None:
        gpus = Inventory({"l4": 2, "h100": 1}, datetime.now(UTC))
        assert gpus.find(L4, []) == "simulated-l4"
        assert gpus.find(L4, [("simulated-l4", 1), ("simulated-h100", 1)]) == "simulated-l4"
        assert gpus.find(L4, [("simulated-l4", 2)]) is None
        assert gpus.could_ever(L4)
        assert not gpus.could_ever(Claim(products=("NVIDIA-L4",), count=3))
        assert {node.product for node in gpus.nodes()} == {"NVIDIA-L4", "NVIDIA-H100-80GB-HBM3"}

    def test_scaling_counts_them_by_what_they_are_whatever_services_call_them(self) -> None:
        gpus = Inventory({"l4": 2, "t4": 1}, datetime.now(UTC))
        found = gpus.stock({"l4": 2, "t4": 2})
        assert {one.product: one.num_gpus for one in found} == {"l4": 2, "t4": 1}
        assert {one.product for one in found if one.is_final} == {"l4"}
        assert gpus.names_of(("nvidia-t4", "Tesla-T4", "NVIDIA-L4")) == ("l4", "t4")
        assert gpus.names_of(("NVIDIA-H200",)) == ("NVIDIA-H200",)

    def test_it_says_what_to_do_where_there_is_none(self) -> None:
        gpus = Inventory({"l4": 1}, datetime.now(UTC))
        assert "raise --simulate l4=N" in gpus.explain(L4)
        h200 = Claim(products=("NVIDIA-H200",), count=1)
        assert "--simulate h200=N stands in for them" in gpus.explain(h200)
        assert "no such GPU" in gpus.explain(Claim(products=("Other",), count=1))


class TestFolder:
    def test_it_is_private_and_gone_afterwards(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("QUIRE_CACHE", str(tmp_path))
        with run_folder() as folder, run_folder() as other:
            assert folder != other
            assert folder.stat().st_mode & 0o077 == 0
            secret = folder / "secret"
            assert write_private(secret, "a")
            assert not write_private(secret, "a")
            assert write_private(secret, b"b")
            assert secret.stat().st_mode & 0o077 == 0
        assert not folder.exists()

    def test_that_of_a_run_which_was_killed_is_removed_by_the_next(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("QUIRE_CACHE", str(tmp_path))
        abandoned = tmp_path / "up" / "run-abandoned"
        abandoned.mkdir(parents=True)
        (abandoned / "lock").touch()
        with run_folder() as folder, run_folder():
            assert folder.exists()
        assert not abandoned.exists()


class TestWatchedFile:
    def test_the_last_good_one_stays(self, tmp_path: Path) -> None:
        path = tmp_path / "services.yaml"

        def write(text: str, moment: int) -> None:
            path.write_text(text)
            os.utime(path, ns=(moment, moment))

        write(_yaml(), 1)
        watched = WatchedFile(path)
        good = watched.resources
        assert not watched.has_changed()
        write("kind: Pod", 2)
        assert not watched.has_changed()  # it may be half written
        assert watched.has_changed()
        assert watched.resources is good
        assert "document 1 is Pod" in watched.problem
        assert not watched.has_changed()
        path.unlink()
        assert not watched.has_changed()
        assert watched.has_changed()
        assert "No such file" in watched.problem
        write(_yaml(priority=5), 3)
        assert not watched.has_changed()
        assert watched.has_changed()
        assert watched.problem == ""
        assert watched.resources != good

    def test_it_must_be_right_at_the_start(self, tmp_path: Path) -> None:
        with pytest.raises(FileError, match="No such file"):
            WatchedFile(tmp_path / "none.yaml")


def _yaml(**spec: Any) -> str:
    import yaml

    return str(yaml.safe_dump(service(**spec)))

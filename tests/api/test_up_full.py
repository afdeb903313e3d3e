"""`quire up` where all GPUs are in use: rollouts end, and what is free again is used again."""

from pathlib import Path
from typing import Any

import httpx

from tests.api.servers import wait_until
from tests.api.ups import RunningUp, resource

_GPUS = ("--simulate", "l4=2,h100=1")


def full(least: int, length: int = 4096, **spec: Any) -> dict[str, Any]:
    """As many replicas as there are GPUs, or more."""
    return resource(
        model={"source": "hf://qwen/Qwen3-0.6B", "maxModelLen": length},
        accelerators=[
            {"name": "l4", "products": ["NVIDIA-L4"], "minReplicas": least},
            {"name": "h100", "products": ["NVIDIA-H100-80GB-HBM3"], "minReplicas": 1},
        ],
        **spec,
    )


def pids(up: RunningUp, name: str = "chat") -> set[int]:
    """Of engines that are ready."""
    engines = up.service(name).get("engines", [])
    return {one["pid"] for one in engines if one["phase"] == "ready"}


def test_gpus_of_engines_that_are_ending_are_not_missing(tmp_path: Path) -> None:
    wanted = resource(
        model={"source": "hf://qwen/Qwen3-0.6B", "name": "known"},
        accelerators=[{"name": "l4", "products": ["NVIDIA-L4"]}],
    )
    with RunningUp(tmp_path, wanted, flags=("--simulate", "l4=1")) as up:
        up.wait_until_ready()
        (before,) = pids(up)
        long = {"model": "known", "prompt": "Once", "max_tokens": 4000, "stream": True}
        with httpx.stream("POST", f"{up.url}/v1/completions", json=long, timeout=120) as answer:
            lines = answer.iter_lines()
            next(lines)
            up.write(wanted | {"spec": wanted["spec"] | {"suspend": True}})
            wait_until(lambda: not up.engines())
            up.write(wanted)  # the GPU is free when the answer has ended
            assert "[DONE]" in "".join(lines)
        wait_until(lambda: bool(pids(up) - {before}))
        wait_until(lambda: up.condition("Ready")[0] == "True")
        assert "raise --simulate" not in up.output


def test_rollout_then_suspend_then_resume_on_a_full_fleet(tmp_path: Path) -> None:
    with RunningUp(tmp_path, full(2), flags=_GPUS) as up:
        up.wait_until_ready()
        wait_until(lambda: len(pids(up)) == 3)
        before = pids(up)
        up.write(full(2, 2048))
        wait_until(lambda: len(pids(up) - before) == 3)
        up.write(full(2, 2048, suspend=True))
        wait_until(lambda: not up.engines())
        up.write(full(2, 2048))
        wait_until(lambda: len(pids(up)) == 3)
        wait_until(lambda: up.condition("Ready")[0] == "True")


def test_a_rollout_ends_where_one_replica_never_finds_a_gpu(tmp_path: Path) -> None:
    with RunningUp(tmp_path, full(3), flags=_GPUS) as up:
        wait_until(lambda: len(pids(up)) == 3)
        before = pids(up)
        wait_until(lambda: up.condition("Ready")[0] == "False")
        up.write(full(3, 2048))
        wait_until(lambda: len(pids(up) - before) == 3)


def test_engines_do_not_make_room_for_a_gpu_that_they_do_not_have(tmp_path: Path) -> None:
    def wanted(product: str) -> dict[str, Any]:
        return resource(
            model={"source": "hf://qwen/Qwen3-0.6B"},
            accelerators=[{"name": "l4", "products": [product], "minReplicas": 2}],
            scaling={"mode": "External"},
        )

    with RunningUp(tmp_path, wanted("NVIDIA-L4"), flags=("--simulate", "l4=2")) as up:
        wait_until(lambda: len(pids(up)) == 2)
        before = pids(up)
        up.write(wanted("NVIDIA-L40S"))
        wait_until(lambda: "this machine has none" in str(up.service()["conditions"]))
        assert len(pids(up) & before) == 2
        up.write(wanted("NVIDIA-L4"))
        wait_until(lambda: up.condition("Ready")[0] == "True")
        assert len(pids(up) & before) == 2


def test_engines_do_not_make_room_for_more_gpus_than_they_leave(tmp_path: Path) -> None:
    def wanted(name: str, count: int) -> dict[str, Any]:
        l4 = {"name": "l4", "products": ["NVIDIA-L4"], "count": count, "minReplicas": 1}
        return resource(
            name,
            model={"source": "hf://qwen/Qwen3-0.6B"},
            accelerators=[l4],
            scaling={"mode": "External"},
        )

    other = wanted("other", 1)
    with RunningUp(tmp_path, wanted("chat", 1), other, flags=("--simulate", "l4=2")) as up:
        wait_until(lambda: len(pids(up)) == 1)
        wait_until(lambda: len(pids(up, "other")) == 1)
        before = pids(up)
        up.write(wanted("chat", 2), other)
        wait_until(lambda: "2 more needed" in str(up.service()["conditions"]))
        assert pids(up) == before
        up.write(wanted("chat", 2))
        wait_until(lambda: bool(pids(up) - before))

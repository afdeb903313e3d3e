"""`quire up` scales: the operator's decisions on what the gateway really sees, with processes."""

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from tests.api.servers import wait_until
from tests.api.ups import RunningUp, descendants, resource, wait_until_gone

_NUM_CLIENTS = 8
_NUM_TOKENS = 60


def small_seats(most: int, **scaling: Any) -> dict[str, Any]:
    """A service of which one replica has seats for two requests."""
    engine = {
        "drainSeconds": 60,
        "maxNumSeqs": 2,
        "extraArgs": ["--simulated-step-seconds=0.02"],
    }
    bounds = {"minReplicas": 1, "maxReplicas": most, "stabilization": {"down": "1h"}}
    return resource(engine=engine, scaling=bounds | scaling)


class Clients:
    """Some that ask again and again, and count how their answers end."""

    def __init__(self, up: RunningUp) -> None:
        self._url = f"{up.url}/v1/completions"
        self._is_over = threading.Event()
        self.endings: Counter[str] = Counter()
        self._threads = [threading.Thread(target=self._ask_on) for _ in range(_NUM_CLIENTS)]

    def __enter__(self) -> "Clients":
        for one in self._threads:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for one in self._threads:
            one.join(120)

    def _ask_on(self) -> None:
        body = {
            "model": "chat",
            "prompt": "word " * 50,
            "max_tokens": _NUM_TOKENS,
            "stream": True,
            "ignore_eos": True,
        }
        with httpx.Client(timeout=120) as client:
            while not self._is_over.is_set():
                with client.stream("POST", self._url, json=body) as answer:
                    text = "".join(answer.iter_text())
                is_whole = text.rstrip().endswith("[DONE]") and '"error"' not in text
                self.endings["whole" if is_whole else f"{answer.status_code}: {text[-200:]}"] += 1


def test_replicas_follow_the_load_and_no_answer_is_cut(tmp_path: Path) -> None:
    with RunningUp(tmp_path, small_seats(3)) as up:
        up.wait_until_ready()
        with Clients(up) as clients:
            wait_until(lambda: len(up.engines()) >= 2, seconds=180)
            pids = {one["pid"] for one in up.engines()}
            up.write(small_seats(3, stabilization={"down": "2h"}))  # a file that is read again
            up.wait_for("FileRead")
            up.write(small_seats(1))
            wait_until(lambda: len(up.service()["engines"]) == 1, seconds=180)
        assert pids & {one["pid"] for one in up.engines()}
        assert set(clients.endings) == {"whole"}

        decisions = up.service()["decisions"]
        assert all(one["reason"] and one["inputs"] for one in decisions)
        counts = [sum(part["replicas"] for part in one["after"]) for one in decisions]
        assert counts[0] == 1
        assert max(counts) >= 2
        assert "quire: chat: Scaled: simulated 1 -> " in up.output
        assert up.condition("ScalingActive")[0] == "True"

        started = descendants(up.process.pid)
        assert up.stop() == 0
        wait_until_gone(started)


def test_an_accelerator_with_another_name_takes_over_and_no_answer_is_cut(tmp_path: Path) -> None:
    l4 = {"name": "l4", "products": ["NVIDIA-L4"], "costPerHour": "1"}
    made = small_seats(3, minReplicas=2)
    made["spec"] |= {"model": {"source": "hf://Qwen/Qwen3-0.6B"}, "accelerators": [l4]}
    renamed = {**made, "spec": made["spec"] | {"accelerators": [l4 | {"name": "other"}]}}
    seen: list[Counter[str]] = []

    def is_replaced() -> bool:
        seen.append(Counter(one["accelerator"] for one in up.engines()))
        return bool(seen[-1]) and "l4" not in seen[-1]

    with RunningUp(tmp_path, made, flags=("--simulate", "l4=8")) as up:
        up.wait_until_ready()
        wait_until(lambda: len(up.engines()) >= 2)
        with Clients(up) as clients:
            up.write(renamed)
            wait_until(is_replaced, seconds=240)
        assert set(clients.endings) == {"whole"}
        assert min(one.total() for one in seen) >= 2
        assert seen[-1]["other"] >= 2
        wait_until(lambda: len(up.service()["engines"]) == seen[-1]["other"])
        reasons = [one["reason"] for one in up.service()["decisions"]]
        assert any("l4 left the spec, and others serve" in one for one in reasons), reasons
        assert up.stop() == 0

"""The server's small parts: listener, histogram, activity, names, progress."""

import asyncio
import io
import socket
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from quire_engine.config import EngineConfig, ExecutorConfig, ModelConfig
from quire_engine.errors import ConfigError, ModelError
from quire_engine.server.activity import Activity
from quire_engine.server.background import run_in_daemon_thread
from quire_engine.server.count_board import CountBoard, Gauge
from quire_engine.server.histogram import HistogramFamily, LoopCounter
from quire_engine.server.listener import listen, url_of
from quire_engine.server.progress import ProgressLines
from quire_engine.server.service import choose_model_name


def test_port_zero_takes_a_free_one_and_the_url_names_it() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert url_of(listener) == f"http://127.0.0.1:{port}"
        with socket.create_connection(("127.0.0.1", port)):
            pass


def test_listening_everywhere_is_reached_on_this_machine() -> None:
    with listen("0.0.0.0", 0) as listener:
        assert url_of(listener).startswith("http://127.0.0.1:")


@pytest.mark.parametrize(
    ("host", "message"),
    [("no-such-host.invalid", "--host"), ("192.0.2.1", "choose another --host")],
)
def test_an_address_of_another_machine_is_refused(host: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        listen(host, 0)


def test_a_histogram_is_exported_as_prometheus_clients_own() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    family = HistogramFamily(
        CountBoard.alone(), "seconds", "Text.", (0.1, 1.0), {"model_name": "m"}
    )
    histogram = family.labels()
    ours.register(family)
    reference = Histogram("seconds", "Text.", ("model_name",), buckets=(0.1, 1), registry=theirs)
    for value, times in ((0.1, 1), (0.5, 3), (7.0, 2)):
        histogram.observe(value, times)
        for _ in range(times):
            reference.labels("m").observe(value)

    created = [line for line in generate_latest(theirs).splitlines() if b"_created" not in line]
    assert generate_latest(ours).splitlines() == created


async def test_activity_is_idle_again_after_the_last_request() -> None:
    activity = Activity(LoopCounter(CountBoard.alone().gauge(Gauge.REQUESTS)))
    await activity.wait_idle()
    with activity.track(), activity.track():
        waiting = asyncio.create_task(activity.wait_idle())
        await asyncio.sleep(0)
        assert not waiting.done()
        assert activity.count == 2
    await waiting


async def test_background_work_returns_and_raises() -> None:
    assert await run_in_daemon_thread(lambda: 7) == 7

    def fail() -> None:
        raise ModelError("odd")

    with pytest.raises(ModelError, match="odd"):
        await run_in_daemon_thread(fail)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("pypi://p==1/a/SmolLM2-135M.Q4_1.gguf", "SmolLM2-135M.Q4_1"),
        ("/models/Qwen2.5-0.5B", "Qwen2.5-0.5B"),
        ("file:///models/Qwen2.5-0.5B/", "Qwen2.5-0.5B"),
    ],
)
def test_a_model_is_named_after_its_file_or_folder(source: str, name: str) -> None:
    config = EngineConfig(model=ModelConfig(source=source))
    assert choose_model_name(config) == name

    named = replace(config, model=replace(config.model, served_model_name="mine"))
    assert choose_model_name(named) == "mine"


def test_a_simulated_model_is_named_after_its_shape() -> None:
    executor = ExecutorConfig(simulate="h100", model_shape="llama3-8b")
    assert choose_model_name(EngineConfig(executor=executor)) == "llama3-8b"


def test_progress_goes_to_a_log_in_few_lines() -> None:
    log = io.StringIO()
    progress = ProgressLines(log)
    for percent in range(100):
        progress("reading weights", percent / 100)
    progress("allocating", 0.5)

    assert log.getvalue() == "quire: reading weights: 0%\nquire: allocating: 50%\n"

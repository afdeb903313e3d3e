"""The quick start on a laptop and all code in Python, run exactly as they are written."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quire_engine.config import EngineConfig
from quire_engine.sources import resolve
from tests.docs.catalogue import AS_WRITTEN
from tests.docs.pages import Block, blocks_of
from tests.docs.private_network import PrivateNetwork, why_no_private_network
from tests.docs.terminal import Reader, fresh_folder

_OBSTACLE = why_no_private_network()
_LAPTOP = "start/laptop.md"

pytestmark = pytest.mark.skipif(_OBSTACLE is not None, reason=_OBSTACLE or "")


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """In a fresh folder; the model is in the cache, as after a first time."""
    resolve(EngineConfig().model.source)
    with PrivateNetwork() as network:
        yield Reader(fresh_folder(tmp_path), network.entering)


def block(page: str, number: int) -> Block:
    assert f"{page}:{number}" in AS_WRITTEN
    return blocks_of(page)[number]


def test_make_run_and_all_that_is_asked_of_it(reader: Reader) -> None:
    with reader.start(block(_LAPTOP, 0)) as running:
        running.wait_for("Ask more from another terminal")
        assert "Paris" in running.output
        for asked in (block(_LAPTOP, 1), block(_LAPTOP, 2), block("README.md", 2)):
            assert "Paris" in reader.run(asked)
        assert "127.0.0.1" in reader.run(block(_LAPTOP, 3))
        assert "get_weather" in reader.run(block("tools.md", 2))
        structured = blocks_of("structured-output.md")
        both = structured[1].text + structured[2].text  # the second goes on from the first
        said = reader.run(Block("structured-output.md", 1, "python", both))
        assert "population=" in said
        assert reader.run(block("beam_search.md", 1)).startswith("0 ")


def test_gpus_that_the_laptop_has_not(reader: Reader) -> None:
    with reader.start(block(_LAPTOP, 4)) as running:
        running.wait_for("OpenAI's API is at")
        said = reader.run(block(_LAPTOP, 5))
        assert '"completion_tokens":20' in said
        assert "h100" in said
    assert running.process.returncode == 0


def test_a_gateway_over_two_engines(reader: Reader) -> None:
    with reader.start(block("gateway.md", 0)) as running:
        running.wait_for("ready")
        assert '"completion_tokens":20' in reader.run(block("gateway.md", 1))


def test_an_engine_that_is_asked_with_tools_and_drained(reader: Reader) -> None:
    # in place of the page's model of 16 GB, an engine that makes up its answers, soon
    flags = "--simulate h100 --model-shape llama3-8b --simulated-step-seconds 0.001"
    engine = Block("tools.md", 0, "sh", f"quire serve {flags} --max-model-len 1024")
    with reader.start(engine) as running:
        running.wait_for("ready: ")
        assert reader.run(block("tools.md", 1))
        assert "drain" in reader.run(block("concepts/drain.md", 0))


def test_what_needs_no_server(reader: Reader) -> None:
    assert "l4" in reader.run(block("howto/mixed-gpus.md", 2))
    assert reader.run(block("reference/seeds.md", 1))

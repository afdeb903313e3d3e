from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from quire_engine.sources import transfer
from tests.unit.sources.hub_server import HubState
from tests.unit.sources.index_server import IndexState, serve_index
from tests.unit.sources.web_server import serve_web


@pytest.fixture
def index() -> IndexState:
    return IndexState()


@pytest.fixture
def environment(
    index: IndexState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Mapping[str, str]]:
    """An environment that names the served index and an empty cache; failures repeat at once."""
    monkeypatch.setattr(transfer, "BACKOFF_SECONDS", 0.001)
    with serve_index(index) as url:
        yield {"PIP_INDEX_URL": url, "QUIRE_CACHE": str(tmp_path / "cache")}


@pytest.fixture
def hub() -> HubState:
    weights = bytes(range(256)) * 2000
    return HubState(
        files={
            "config.json": b'{"model_type": "llama"}',
            "tokenizer.json": b'{"model": {}}',
            "model.safetensors": weights,
            "pytorch_model.bin": weights,
            "modeling_own.py": b"import os",
            "README.md": b"# Repo",
        }
    )


@pytest.fixture
def hub_environment(
    hub: HubState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, str]]:
    """An environment that names the served hub and an empty cache; failures repeat at once."""
    monkeypatch.setattr(transfer, "BACKOFF_SECONDS", 0.001)
    with serve_web(hub) as url, serve_web(hub.cdn) as cdn_url:
        hub.cdn_url = cdn_url
        yield {
            "HF_ENDPOINT": url,
            "QUIRE_CACHE": str(tmp_path / "cache"),
            "HOME": str(tmp_path),
        }

"""A core that cannot start says why, for the server to pass on."""

import re
from typing import cast

import pytest
import zmq

from quire_engine.config import EngineConfig
from quire_engine.core import process
from quire_engine.core.inputs import InputThread
from quire_engine.core.launch import CoreLaunch
from quire_engine.core.outputs import OutputSockets
from quire_engine.errors import ModelError
from quire_engine.protocol.messages import CoreFailed, FromCore

LAUNCH = CoreLaunch(config=EngineConfig(), model_path=None, input_address="")


class Sent:
    """What the API servers are told; there is one."""

    has_hearers = True

    def __init__(self) -> None:
        self.messages: list[FromCore] = []

    def send_to_all(self, message: FromCore) -> None:
        self.messages.append(message)


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (ModelError("x.gguf is damaged"), "x.gguf is damaged"),
        (MemoryError("no 9 TiB"), "memory is too small .*no 9 TiB.* lower kv_cache_bytes"),
        (ZeroDivisionError(), "the core's log above says why"),
    ],
)
def test_a_model_that_cannot_be_held_is_told(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, message: str
) -> None:
    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(process, "create_executor", fail)
    sent = Sent()
    core = process._CoreProcess(
        LAUNCH, zmq.Context.instance(), cast("InputThread", None), cast("OutputSockets", sent)
    )

    assert core.run() == 1

    [told] = sent.messages
    assert isinstance(told, CoreFailed)
    assert re.search(message, told.error), told.error

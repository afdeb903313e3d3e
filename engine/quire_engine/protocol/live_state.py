"""What `GET /state/live` sends: the state, and who holds which block, for people who watch."""

from typing import Literal

import msgspec

from quire_engine.protocol.messages import CoreView
from quire_engine.protocol.state import EngineState


class LiveState(msgspec.Struct, kw_only=True, frozen=True):
    """One engine at work."""

    version: str
    status: Literal["ok", "loading", "restarting", "draining"]
    state: EngineState
    """Without prefix-chunk events."""
    view: CoreView | None
    """None until the core has sent one: a moment after somebody began to watch, and always with a
    command in a model's place."""

"""Reading server-sent events as bytes, without a client's kindness."""

import json
from typing import Any

DONE = "[DONE]"


def parse_events(text: str) -> list[Any]:
    """The events of a whole stream: decoded JSON, and DONE as it is."""
    assert text.endswith("\n\n"), "the last event is not complete"
    events = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        assert block.startswith("data: "), block
        assert "\n" not in block
        data = block.removeprefix("data: ")
        events.append(DONE if data == DONE else json.loads(data))
    return events


def check_ends_once(events: list[Any]) -> str:
    """Every stream ends with a finish reason or an error, then DONE; says with which."""
    assert events[-1] == DONE
    assert events.count(DONE) == 1
    *before, last = [event for event in events[:-1] if event.get("choices") != []]
    assert all("error" not in event for event in before)
    reasons = [event["choices"][0]["finish_reason"] for event in before]
    assert set(reasons) <= {None}
    if "error" in last:
        assert last["error"]["message"]
        return "error"
    assert last["choices"][0]["finish_reason"] in ("stop", "length")
    return "finish"


def text_of(events: list[Any]) -> str:
    """The text of a chat stream."""
    choices = [event["choices"][0] for event in events if event != DONE and event.get("choices")]
    return "".join(choice["delta"].get("content", "") for choice in choices)

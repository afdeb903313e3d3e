"""Spans of gateway and engine, as one collector gets them."""

import signal
from pathlib import Path

from tests.api.gateways import GATEWAY, RunningGateway, service
from tests.api.otlp_receiver import OtlpReceiver
from tests.api.servers import SIMULATED, RunningServer, start, wait_until
from tests.api.test_gateway import COMPLETIONS, completion
from tests.api.test_tracing import QUICK

TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_the_engines_span_is_the_child_of_the_gateways(tmp_path: Path) -> None:
    with OtlpReceiver() as receiver:
        endpoint = ("--otlp-endpoint", receiver.url)
        with RunningServer(*SIMULATED, *endpoint, env=QUICK) as engine:
            flags = (*endpoint, "--drain-grace-seconds", "0")
            with RunningGateway(tmp_path / "r.json", [service([engine])], *flags) as gateway:
                wait_until(lambda: gateway.num_eligible() == 1)
                sent = {
                    "traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01",
                    "x-request-id": "mine",
                }
                assert gateway.post(COMPLETIONS, completion(), headers=sent).status_code == 200
                assert gateway.post(COMPLETIONS, completion()).status_code == 200
                assert gateway.get("/v1/models").status_code == 200
                gateway.stop(signal.SIGTERM)
                assert gateway.process.wait(60) == 0
            wait_until(lambda: sum(one.raw.kind == 2 for one in receiver.spans) >= 4)
        names = {one["service.name"] for one in receiver.resources}
        servers = [one for one in receiver.spans if one.raw.kind == 2]  # SERVER
    assert names == {"quire", "quire-gateway"}
    ours = [one for one in servers if one.name == f"POST {COMPLETIONS}"]
    theirs = {one.raw.parent_span_id: one for one in servers if one not in ours}
    assert len(ours) == len(theirs) == 2
    for one in ours:
        assert theirs[one.raw.span_id].raw.trace_id == one.raw.trace_id
    first = next(one for one in ours if one.raw.trace_id == bytes.fromhex(TRACE_ID))
    assert first.raw.parent_span_id == bytes.fromhex(PARENT_ID)
    assert first.attributes["quire.request.id"] == "mine"
    assert first.attributes["quire.service"] == "default/chat"
    assert first.attributes["gen_ai.usage.output_tokens"] == 8
    other = next(one for one in ours if one is not first)
    assert other.raw.parent_span_id == b""


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text("[]")
    process = start("--routing", str(path), "--otlp-endpoint", "collector:4318", program=GATEWAY)
    assert process.wait(timeout=60) == 2
    assert process.stdout is not None
    process.stdout.close()

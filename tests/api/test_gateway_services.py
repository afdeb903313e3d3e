"""Which service a request means, who is let in, and engines that leave or hang."""

import asyncio
import contextlib
import hashlib
import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from quire_engine.protocol.internal_token import internal_token
from tests.api.gateways import (
    FakeEngine,
    FakeEngines,
    FakeRequest,
    RunningGateway,
    answer_ok,
    service,
)
from tests.api.servers import SIMULATED, RunningServer, wait_until
from tests.api.test_gateway import COMPLETIONS, begin_stream, completion
from tests.unit.gateway.builders import document

SECRET = "a secret of thirty-two bytes, at least"


@pytest.fixture
def fakes() -> Iterator[FakeEngines]:
    with FakeEngines() as running:
        yield running


def test_a_host_of_an_ingress_means_its_own_services(fakes: FakeEngines, tmp_path: Path) -> None:
    engines = {name: fakes.add(answer_ok) for name in ("inside", "public", "private", "twin")}

    def of(name: str, **changes: Any) -> dict[str, Any]:
        fields = {"namespace": f"ns-{name}", "name": name, "model_names": ["m"]}
        return service([engines[name]], **fields | changes)

    documents = [
        of("inside"),
        of("public", host="Public.example", is_public=True),
        of("private", host="private.example"),
    ]
    with RunningGateway(tmp_path / "r.json", documents) as gateway:
        wait_until(lambda: all(gateway.num_eligible(one["name"]) == 1 for one in documents))

        def ask(host: str) -> tuple[int, set[str]]:
            before = {name: len(one.requests) for name, one in engines.items()}
            answer = gateway.post(COMPLETIONS, completion(model="m"), headers={"host": host})
            served = {name for name, one in engines.items() if len(one.requests) > before[name]}
            return answer.status_code, served

        def models(host: str) -> list[str]:
            listed = gateway.get("/v1/models", headers={"host": host})
            return [one["id"] for one in listed.json().get("data", [])]

        assert ask("public.example:8080") == (200, {"public"})
        assert ask("private.example") == (403, set())
        assert ask("inside.ns-inside.svc.cluster.local") == (200, {"inside"})
        assert ask("private.ns-private.svc") == (200, {"private"})
        assert ask("public.ns-public") == (200, {"public"})
        assert ask("10.0.0.1") == (200, {"inside"})  # the first one
        assert models("PUBLIC.example") == models("10.0.0.1") == ["m"]
        assert models("private.example") == []
        assert ask("private.example.:443") == (403, set())  # the root's dot is no other host

        def proxied(host: str) -> httpx.Response:
            headers = {"host": host, "x-forwarded-for": "203.0.113.7"}
            return gateway.post(COMPLETIONS, completion(model="m"), headers=headers)

        assert proxied("public.example").status_code == 200
        for host in ("other.example", "inside.ns-inside", "10.0.0.1", "localhost", ""):
            refused = proxied(host)
            assert refused.status_code == 404, host
            assert "--proxied-hosts" in refused.json()["error"]["message"]
        listed = gateway.get("/v1/models", headers={"host": "other.example", "via": "1.1 nginx"})
        assert listed.status_code == 404

        gateway.write([of("public", host="public.example", is_public=True, model_names=["other"])])
        wait_until(lambda: ask("public.example")[0] == 404)
        gateway.write([of("inside"), of("twin", host=None)])  # one name, and no host to tell by
        wait_until(lambda: "quire_gateway_routing_stale 1.0" in gateway.manage("/metrics").text)
        assert ask("public.example")[0] == 404


def test_an_engine_takes_the_gateway_by_the_internal_token(tmp_path: Path) -> None:
    tokens, secret = tmp_path / "tokens", tmp_path / "secret"
    tokens.write_text(internal_token(SECRET.encode(), "default", "chat", 3) + "\n")
    secret.write_text(SECRET + "\n")
    flags = ("--internal-token-file", str(tokens))
    with RunningServer(*SIMULATED, *flags) as engine:
        for epoch, status in ((3, 200), (2, 503)):
            documents = [service([engine], token_epoch=epoch, cold_start_queue_seconds=1)]
            documents[0]["thresholds"] = document()["thresholds"] | {"max_queue_seconds": 1}
            path = tmp_path / f"{epoch}.json"
            with RunningGateway(path, documents, "--root-secret-file", str(secret)) as gateway:
                if status == 200:
                    wait_until(lambda: gateway.num_eligible() == 1)
                assert gateway.post(COMPLETIONS, completion()).status_code == status


def test_an_engine_that_drains_gets_nothing_new_and_ends_what_it_has(
    slow_server: RunningServer, tmp_path: Path
) -> None:
    steps = ("--simulated-step-seconds", "0.05")
    with RunningServer(*SIMULATED, *steps) as leaving, contextlib.ExitStack() as stack:
        gateway = stack.enter_context(
            RunningGateway(tmp_path / "r.json", [service([leaving])]),
        )
        wait_until(lambda: gateway.num_eligible() == 1)
        rest = begin_stream(stack, gateway, 100)
        gateway.write([service([leaving, slow_server])])
        wait_until(lambda: gateway.num_eligible() == 2)
        leaving.stop(signal.SIGTERM)
        wait_until(lambda: gateway.num_eligible() == 1)
        answers = [gateway.post(COMPLETIONS, completion()) for _ in range(3)]
        assert [one.status_code for one in answers] == [200] * 3
        text = "".join(rest)
    assert text.endswith("data: [DONE]\n\n")
    assert '"error"' not in text


def test_an_engine_that_hangs_is_passed_by(server: RunningServer, tmp_path: Path) -> None:
    flags = ("--silence-seconds", "4", "--stale-seconds", "3")
    with RunningServer(*SIMULATED, "--simulated-step-seconds", "0.05") as hanging:
        documents = [service([hanging])]
        with RunningGateway(tmp_path / "r.json", documents, *flags) as gateway:
            wait_until(lambda: gateway.num_eligible() == 1)
            with ThreadPoolExecutor(2) as pool:
                streaming = completion(max_tokens=4000, stream=True)
                stream = pool.submit(gateway.post, COMPLETIONS, streaming)
                wait_until(lambda: hanging.state().sequences.running == 1)
                hanging.stop(signal.SIGSTOP)
                try:
                    whole = pool.submit(gateway.post, COMPLETIONS, completion())
                    gateway.write([service([hanging, server])])
                    assert whole.result(60).status_code == 200
                    assert "engine_lost" in stream.result(60).text
                finally:
                    hanging.stop(signal.SIGCONT)


def test_a_deadline_that_cannot_be_met_is_refused_and_one_that_passes_too(
    slow_server: RunningServer, tmp_path: Path
) -> None:
    with RunningGateway(tmp_path / "r.json", [service([slow_server])]) as gateway:
        wait_until(lambda: gateway.num_eligible() == 1)
        slow_server.wait_until_idle()
        with contextlib.ExitStack() as streams:
            _running = [begin_stream(streams, gateway, 4000) for _ in range(4)]
            headers = {"x-quire-deadline-ms": "300"}
            refused = gateway.post(COMPLETIONS, completion(), headers=headers)
            assert refused.status_code == 429
            assert int(refused.headers["retry-after-ms"]) >= 1000
            background = {"x-quire-priority": "background"}
            url, body = gateway.url + COMPLETIONS, completion()
            with pytest.raises(httpx.ReadTimeout):  # background work waits, as long as it may
                httpx.post(url, json=body, headers=background, timeout=1)
        slow_server.wait_until_idle()


async def answer_when_told(request: FakeRequest) -> None:
    await asyncio.to_thread(request.engine.may_go_on.wait, 60)
    await answer_ok(request)


def test_one_that_waited_long_is_given_to_an_engine_that_holds_room(
    fakes: FakeEngines, tmp_path: Path
) -> None:
    engine = fakes.add(answer_when_told)
    impatient = document()["thresholds"] | {"max_queue_seconds": 100.0}
    documents = [service([engine], thresholds=impatient)]
    with RunningGateway(tmp_path / "r.json", documents) as gateway, ThreadPoolExecutor(2) as pool:
        wait_until(lambda: gateway.num_eligible() == 1)
        small = pool.submit(gateway.post, COMPLETIONS, completion())
        wait_until(lambda: len(engine.requests) == 1)
        # 970 of 1,000 blocks: more than is free below the ceiling, and less than there are
        big = pool.submit(gateway.post, COMPLETIONS, completion(prompt="word " * 12_400))
        wait_until(lambda: gateway.fleet()["queue"]["interactive"]["waiting"] == 1)
        documents[0]["thresholds"] |= {"max_queue_seconds": 1.0}  # a quarter of it is long ago
        gateway.write(documents)
        wait_until(lambda: len(engine.requests) == 2)
        admits = [one.headers()["x-quire-admit"] for one in engine.requests]
        engine.may_go_on.set()
        assert [one.result(60).status_code for one in (small, big)] == [200, 200]
    assert admits == ["now", "wait"]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_keys_that_change_are_in_force_without_a_restart(
    fakes: FakeEngines, tmp_path: Path
) -> None:
    engine: FakeEngine = fakes.add(answer_ok)

    def documents(*names: str) -> list[dict[str, Any]]:
        keys = [{"name": name, "sha256": digest(name)} for name in names]
        return [service([engine], api_keys=keys, api_keys_secret="keys")]

    with RunningGateway(tmp_path / "r.json", documents("old")) as gateway:
        wait_until(lambda: gateway.num_eligible() == 1)

        def ask(name: str) -> int:
            headers = {"authorization": f"Bearer {name}"}
            return gateway.post(COMPLETIONS, completion(), headers=headers).status_code

        assert [ask("old"), ask("new")] == [200, 401]
        wrong = gateway.get("/v1/models", headers={"authorization": "Bearer new"})
        assert (wrong.status_code, wrong.json()["error"]["message"]) == (
            401,
            "The key is not known.",
        )
        gateway.write(documents("new"))
        wait_until(lambda: ask("new") == 200)
        wait_until(lambda: ask("old") == 401)  # another worker may have seen it a moment later
        gateway.write(documents())  # all are gone: nobody may, which is not the same as everybody
        wait_until(lambda: ask("new") == 401)
        assert json.loads(gateway.get("/v1/models").text)["error"]

"""Traffic as users have it: OpenAI's client, Envoy, two gateways of another namespace, engines.

    client ── Envoy (host of the Ingress) ── gateway x 2 (quire-system) ── engine x 2 (traffic)

Engines and gateways are replaced and killed under streams that nobody tries again.
"""

import base64
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from hack.cluster.cluster import Cluster
from tests.api.servers import SIMULATED, RunningServer, wait_until
from tests.cluster.operators import SYSTEM
from tests.nodes.clients import Client
from tests.nodes.faults import kill_container, restarts
from tests.nodes.outside import as_user, lists, way_in
from tests.nodes.programs import gateway, roll_out
from tests.nodes.seen import pods_of, show, uids
from tests.nodes.services import A100, L4, MODEL, Body, Service, is_ready, simulated
from tests.nodes.streams import CUT, Load

HOST = "traffic.example.com"
KEY, SLOW_KEY = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
KEYS = {"app": KEY, "slow": f'{{"key": "{SLOW_KEY}", "requests_per_minute": 2}}'}
MESSAGES: list[Any] = [{"role": "user", "content": "Once upon a time"}]
QUESTION: Body = {"model": MODEL, "messages": MESSAGES, "max_tokens": 60}
DRAIN_SECONDS = 120


@pytest.fixture(scope="module")
def two_gateways(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with two gateways that end as the chart's do."""
    roll_out(cluster, *gateway(replicas=2, grace_seconds=5, drain_seconds=DRAIN_SECONDS))
    yield cluster
    roll_out(cluster, *gateway())


@pytest.fixture(scope="module")
def traffic(two_gateways: Cluster) -> Iterator[Service]:
    """A service behind the Ingress, for those who have a key."""
    api, namespace = two_gateways.api, "traffic"
    api.call("create", "namespace", namespace)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": namespace, "name": "keys"},
        "stringData": KEYS,
    }
    api.apply(secret)
    service = Service(two_gateways, namespace, MODEL)
    apply_revision(service, 1)
    service.wait_for("Ready", "True")
    with as_user(two_gateways, HOST, KEY) as user:
        wait_until(lambda: lists(user, MODEL), pause_seconds=0.2)
    yield service
    api.call("delete", "namespace", namespace, "--timeout=170s")


@pytest.fixture
def question_pod(traffic: Service) -> Iterator[Client]:
    """A pod that asks engines themselves."""
    yield Client(traffic.cluster, traffic.namespace)
    gone = ("delete", "pod", Client.name, f"--namespace={traffic.namespace}", "--timeout=60s")
    traffic.cluster.api.call(*gone)


def apply_revision(service: Service, number: int) -> None:
    """Engines of another revision, two where two more have room beside them."""
    pod = {"env": [{"name": "REVISION", "value": str(number)}]}
    service.apply(
        simulated(L4, pod=pod) | {"products": [A100, L4]},
        replicas=2,
        engine={"drainSeconds": DRAIN_SECONDS},
        ingress={"host": HOST},
        access={"apiKeysSecretRef": {"name": "keys"}},
    )


def num_running(client: Client, service: Service) -> int:
    """Sequences that its engines compute, by their own accounts."""
    path = f"/api/v1/namespaces/{service.namespace}/secrets/{service.name}-internal"
    tokens = base64.b64decode(service.cluster.api.get(path)["data"]["tokens"]).decode().split()
    total = 0
    for pod in service.pods():
        url = f"http://{pod['status']['podIP']}:8000/state"
        answer = client.ask(url, authorization=f"Bearer {tokens[0]}")
        assert answer.status == 200, answer.text
        total += answer.json()["sequences"]["running"]
    return total


def test_a_stream_comes_piece_by_piece_and_its_reader_may_leave(
    traffic: Service, question_pod: Client
) -> None:
    with as_user(traffic.cluster, HOST, KEY) as user:
        stream = user.chat.completions.create(
            model=MODEL, messages=MESSAGES, max_tokens=4000, stream=True
        )
        seen = [next(stream) for _ in range(3)]

        assert any(chunk.choices[0].delta.content for chunk in seen)
        assert num_running(question_pod, traffic) == 1  # of 4,000 tokens, most are still to come
        assert next(stream).choices[0].finish_reason is None
        stream.close()
        traffic.wait(lambda: num_running(question_pod, traffic) == 0, "the engine has left off")


@pytest.mark.parametrize("is_direct", [True, False], ids=["direct", "through the ingress"])
def test_openais_client_passes(traffic: Service, is_direct: bool, tmp_path: Path) -> None:
    if not is_direct:
        with (
            as_user(traffic.cluster, HOST, KEY) as user,
            as_user(traffic.cluster, HOST, "x" * 22) as stranger,
        ):
            check(user, stranger)
        return
    keys = tmp_path / "keys"
    keys.write_text(KEY)
    with RunningServer(*SIMULATED, "--api-key-file", str(keys)) as server:
        url = f"{server.url}/v1"
        user = openai.OpenAI(base_url=url, api_key=KEY, max_retries=0, timeout=120)
        stranger = openai.OpenAI(base_url=url, api_key="x" * 22, max_retries=0, timeout=120)
        check(user, stranger)


def check(user: openai.OpenAI, stranger: openai.OpenAI) -> None:
    """What the client gets, whoever it asks."""
    assert [one.id for one in user.models.list()] == [MODEL]
    assert user.models.retrieve(MODEL).id == MODEL
    whole = user.chat.completions.create(**QUESTION)
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage is not None
    assert whole.usage.completion_tokens == QUESTION["max_tokens"]
    chunks = list(
        user.chat.completions.create(
            **QUESTION, stream=True, stream_options={"include_usage": True}
        )
    )
    used = chunks[-1].usage
    assert used is not None
    assert used.completion_tokens == whole.usage.completion_tokens
    assert used.prompt_tokens == whole.usage.prompt_tokens  # of which some may be cached by now
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text
    *_, last = user.completions.create(model=MODEL, prompt="Once", max_tokens=5, stream=True)
    assert last.choices[0].finish_reason == "length"

    with pytest.raises(openai.NotFoundError, match="unheard-of"):
        user.chat.completions.create(**QUESTION | {"model": "unheard-of"})
    with pytest.raises(openai.AuthenticationError):
        stranger.chat.completions.create(**QUESTION)
    with pytest.raises(openai.BadRequestError, match="max_tokens"):
        user.chat.completions.create(**QUESTION | {"max_tokens": -1})


def test_who_asks_too_often_is_told_when_to_come_again(traffic: Service) -> None:
    def ask_on() -> None:
        for _ in range(20):  # the gateways share a limit, and each has its part
            user.chat.completions.create(**QUESTION | {"max_tokens": 1})

    with (
        as_user(traffic.cluster, HOST, SLOW_KEY) as user,
        pytest.raises(openai.RateLimitError) as raised,
    ):
        ask_on()
    assert float(raised.value.response.headers["retry-after"]) > 0


def test_engines_are_replaced_under_load_and_nothing_is_lost(
    traffic: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    old = uids(pods_of(traffic.cluster, "engine", traffic.namespace))
    with Load(way_in(traffic.cluster, HOST, KEY), QUESTION) as load:
        apply_revision(traffic, 2)
        traffic.wait(
            lambda: not old & uids(pods_of(traffic.cluster, "engine", traffic.namespace)),
            "the old ones are gone",
        )
        traffic.wait_for("Ready", "True")
        load.wait_for_more()

    show(capsys, load.table("engines are replaced"))
    assert load.failures == []


def test_gateways_are_replaced_under_load_and_nothing_is_lost(
    traffic: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = traffic.cluster
    old = uids(pods_of(cluster, "gateway"))
    with Load(way_in(cluster, HOST, KEY), QUESTION) as load:
        name, here = "deployment/quire-gateway", f"--namespace={SYSTEM}"
        cluster.api.call("rollout", "restart", name, here)
        traffic.wait(lambda: not old & uids(pods_of(cluster, "gateway")), "the old ones are gone")
        load.wait_for_more()

    show(capsys, load.table("gateways are replaced"))
    assert len(pods_of(cluster, "gateway")) == 2
    assert load.failures == []


def test_a_killed_gateway_takes_its_own_open_streams_and_no_others(
    traffic: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = traffic.cluster
    traffic.wait(lambda: len(pods_of(cluster, "gateway")) == 2, "there are two gateways")
    victim, other = pods_of(cluster, "gateway")
    with Load(way_in(cluster, HOST, KEY), QUESTION) as load:
        kill_container(cluster, victim)
        load.wait_for_more()
        traffic.wait(lambda: restarted(cluster, victim), "it is started again")
        load.wait_for_more()

    show(capsys, load.table("a gateway is killed"))
    assert {one.kind for one in load.failures} <= {CUT}
    assert len(load.failures) <= load.num_streams
    name = other["metadata"]["name"]
    log = cluster.api.call("logs", name, f"--namespace={SYSTEM}", "--tail=-1")
    served = [one for one in load.outcomes if one.request_id in log]
    assert served, "the other one's requests are in its log"
    assert not [one for one in served if one.kind == CUT]


def restarted(cluster: Cluster, pod: Body) -> bool:
    """Whether its container was started again, and is ready."""
    uid = pod["metadata"]["uid"]
    (now,) = (one for one in pods_of(cluster, "gateway") if one["metadata"]["uid"] == uid)
    return restarts(now) > restarts(pod) and is_ready(now)

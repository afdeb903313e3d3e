"""The objects beside the pods: ways in, who may pass, what gateways are told."""

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from quire_engine.protocol.internal_token import internal_token
from quire_gateway.routing.access import Access
from quire_gateway.routing.document import read_documents
from quire_operator.planner.api_keys import read_keys
from quire_operator.planner.documents import routing_map
from quire_operator.planner.observed import GatewayPods, Observed, SecretsSeen
from quire_operator.planner.plan import plan
from quire_operator.planner.settings import PlannerSettings, RouteParent
from tests.unit.control.builders import L4, NOW, SETTINGS, external, gateways, service

WITH_GATEWAY = replace(SETTINGS, token_epoch=3)
SECRET = b"s" * 32


def objects(
    settings: PlannerSettings = WITH_GATEWAY,
    pods: Mapping[bool, GatewayPods] | None = None,
    **spec: Any,
) -> dict[tuple[str, str], dict[str, Any]]:
    seen = Observed(service=service(L4, **spec), root_secret=SECRET, gateways=pods or {})
    made = plan(seen, settings, NOW)
    return {(one["kind"], one["metadata"]["name"]): one for one in made.objects}


def test_everything_belongs_to_the_service_and_names_its_service() -> None:
    for body in objects(**external(2)).values():
        owner = body["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["uid"], owner["controller"]) == (
            "InferenceService",
            "u1",
            True,
        )
        assert body["metadata"]["labels"]["serving.quire.dev/service"] == "chat"
        assert body["metadata"]["namespace"] == "models"
        assert "finalizers" not in body["metadata"]


def test_the_way_in_leads_to_the_gateways_pods_in_their_namespace() -> None:
    made = objects(pods=gateways("10.0.0.2", "10.0.0.1", "fd00::1"))

    assert "selector" not in made["Service", "chat"]["spec"]
    four = made["EndpointSlice", "chat-gateway-ipv4"]
    assert [one["addresses"] for one in four["endpoints"]] == [["10.0.0.1"], ["10.0.0.2"]]
    assert four["metadata"]["labels"]["kubernetes.io/service-name"] == "chat"
    assert made["EndpointSlice", "chat-gateway-ipv6"]["addressType"] == "IPv6"
    assert made["Service", "chat-engines"]["spec"]["clusterIP"] == "None"


def test_without_a_gateway_it_leads_to_the_engines() -> None:
    made = objects(replace(SETTINGS, gateway=None))

    assert made["Service", "chat"]["spec"]["selector"]["serving.quire.dev/role"] == "engine"
    assert not any(kind == "EndpointSlice" for kind, _ in made)


def test_where_gateways_speak_tls_every_way_to_them_says_so() -> None:
    assert WITH_GATEWAY.gateway is not None
    settings = replace(WITH_GATEWAY, gateway=replace(WITH_GATEWAY.gateway, is_tls=True))
    wanted = {"host": "m.example.com"}
    pods = {True: GatewayPods(taking=("10.0.0.1",))}
    made = objects(settings, pods, ingress=wanted, access={"public": True})

    way_in = made["Service", "chat"]
    assert [(one["name"], one["port"]) for one in way_in["spec"]["ports"]] == [("https", 443)]
    assert way_in["metadata"]["annotations"]["projectcontour.io/upstream-protocol.tls"] == "443"
    # a slice belongs to the Service's port of the same name
    assert made["EndpointSlice", "chat-gateway-tls-ipv4"]["ports"][0]["name"] == "https"
    assert ("EndpointSlice", "chat-gateway-ipv4") not in made
    ingress = made["Ingress", "chat"]
    path = ingress["spec"]["rules"][0]["http"]["paths"][0]
    assert path["backend"]["service"]["port"] == {"name": "https"}
    annotations = ingress["metadata"]["annotations"]
    assert annotations["nginx.ingress.kubernetes.io/backend-protocol"] == "HTTPS"
    engines = made["Service", "chat-engines"]["spec"]["ports"]
    assert [one["name"] for one in engines] == ["http"]  # by which Prometheus reads them
    seen = Observed(service=service(L4), root_secret=SECRET)
    assert plan(seen, settings, NOW).status.url == "https://chat.models.svc.cluster.local/v1"


def test_the_ingress_has_the_host_and_leaves_streams_alone() -> None:
    wanted = {"host": "m.example.com", "className": "contour", "tlsSecretName": "tls"}
    made = objects(ingress=wanted, access={"public": True})["Ingress", "chat"]

    assert made["spec"]["rules"][0]["host"] == "m.example.com"
    assert made["spec"]["tls"] == [{"hosts": ["m.example.com"], "secretName": "tls"}]
    annotations = made["metadata"]["annotations"]
    assert annotations["projectcontour.io/response-timeout"] == "infinity"
    assert annotations["projectcontour.io/retry-on"] == "connect-failure,reset"
    assert annotations["nginx.ingress.kubernetes.io/proxy-buffering"] == "off"


def test_by_the_gateway_api_a_route_without_time_limits_is_there_and_no_ingress() -> None:
    settings = replace(SETTINGS, route_parent=RouteParent(namespace="infra", name="public"))
    wanted = {"host": "m.example.com", "annotations": {"a": "b"}}
    made = objects(settings, ingress=wanted, access={"public": True})

    assert ("Ingress", "chat") not in made
    route = made["HTTPRoute", "chat"]
    assert route["metadata"]["annotations"] == {"a": "b"}
    assert route["spec"] == {
        "parentRefs": [{"namespace": "infra", "name": "public"}],
        "hostnames": ["m.example.com"],
        "rules": [
            {
                "backendRefs": [{"name": "chat", "port": 80}],
                "timeouts": {"request": "0s", "backendRequest": "0s"},
            }
        ],
    }
    assert ("HTTPRoute", "chat") not in objects(settings)


def test_engines_take_this_epochs_token_and_the_one_before() -> None:
    text = objects()["Secret", "chat-internal"]["data"]["tokens"]

    assert base64.b64decode(text).decode().split() == [
        internal_token(SECRET, "models", "chat", 3),
        internal_token(SECRET, "models", "chat", 2),
    ]


def test_one_engine_alone_does_not_keep_its_node_from_being_drained() -> None:
    assert ("PodDisruptionBudget", "chat-engines") not in objects(**external(1))
    budget = objects(**external(2))["PodDisruptionBudget", "chat-engines"]["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_gateways_are_told_what_they_need_and_no_secret() -> None:
    made = objects(
        model={"source": "hf://a/b", "name": "m", "aliases": ["n"]},
        access={"apiKeysSecretRef": {"name": "keys"}},
        scaling={"slo": {"timeToFirstToken": "2s"}},
    )["ConfigMap", "chat-routing"]
    document = json.loads(made["data"]["routing.json"])

    assert made["metadata"]["labels"]["serving.quire.dev/role"] == "routing"
    assert document["schema_version"] == 1
    assert document["model_names"] == ["m", "n"]
    assert document["thresholds"]["slo_time_to_first_token_seconds"] == 2.0
    assert document["api_keys_secret"] == "keys"
    assert document["api_keys"] == []  # nobody, until the Secret has been read
    assert internal_token(SECRET, "models", "chat", 3) not in json.dumps(made)


def test_a_gateway_reads_the_document_with_each_key_by_its_hash() -> None:
    key = "sk-0123456789abcdef"
    limits = {"max_priority": "background", "requests_per_minute": 9, "tokens_per_minute": 90}
    entry = json.dumps({"key": key + "b", "models": ["n"], "salt": "s", **limits})
    secret = {"a": key, "b": entry, "c": "bad"}
    data = {name: base64.b64encode(text.encode()).decode() for name, text in secret.items()}
    wanted = service(
        L4,
        model={"source": "hf://a/b", "name": "m", "aliases": ["n"]},
        access={"apiKeysSecretRef": {"name": "keys"}},
        ingress={"host": "m.example.com"},
    )
    seen = Observed(service=wanted, root_secret=SECRET, secrets=SecretsSeen(keys=read_keys(data)))
    made = plan(seen, WITH_GATEWAY, NOW)
    text = routing_map(seen, WITH_GATEWAY)["data"]["routing.json"]
    (document,) = read_documents(text.encode())

    assert document.host == "m.example.com"
    assert not document.is_open
    assert document.model_names == ("m", "n")
    assert [one.name for one in document.api_keys] == ["a", "b"]
    access = Access(document, lambda seconds: seconds)
    assert access.identify(key.encode(), "").name == "a"
    other = access.identify(f"{key}b".encode(), "")
    assert (other.models, other.salt) == (("n",), "s")
    assert limits == {name: getattr(other, name) for name in limits}
    assert key not in str(made)  # in no object, no event, no word of the status
    degraded = next(one for one in made.status.conditions if one.type == "Degraded")
    assert degraded.reason == "ApiKeysInvalid"
    assert "c has a key of less than 16 characters" in degraded.message

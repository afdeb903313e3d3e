"""What others made stays theirs, whatever its name and labels; what they spoil is put right."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.cluster.cluster import Cluster
from tests.api.servers import wait_until
from tests.cluster.operators import RunningOperator, install, uninstall
from tests.cluster.services import Body, get, make, tokens, wait_for_status
from tests.cluster.test_operator_keys import degraded, wait_for_reason

GATEWAYS = "gateways"
NAME_LABEL = "app.kubernetes.io/name"
WAY_IN: Body = {"ingress": {"host": "models.example.com"}, "access": {"public": True}}


@pytest.fixture(scope="module")
def kubeconfig(api_cluster: Cluster) -> Iterator[Path]:
    path = install(api_cluster)
    api_cluster.api.call("create", "namespace", GATEWAYS)
    yield path
    api_cluster.api.call("delete", "namespace", GATEWAYS, "--wait=false")
    uninstall(api_cluster)


@pytest.fixture(scope="module")
def operator(
    kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningOperator]:
    log = tmp_path_factory.mktemp("strangers") / "operator.log"
    flags = ("--lease-seconds=3", "--secrets-seconds=1", "--poll-seconds=1")
    with RunningOperator(kubeconfig, log, f"--gateway-namespace={GATEWAYS}", *flags) as one:
        yield one


@pytest.fixture
def namespace(api_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own."""
    name = request.node.name.replace("_", "-")[:40].strip("-")
    api_cluster.api.call("create", "namespace", name)
    yield name
    api_cluster.api.call("delete", "namespace", name, "--wait=false")


def theirs(kind: str, name: str, namespace: str, **content: Any) -> Body:
    """An object that a person made."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **content}


def test_what_others_made_is_not_written_over_and_outlives_the_service(
    api_cluster: Cluster, operator: RunningOperator, namespace: str
) -> None:
    shop = theirs("Service", "chat", namespace, spec={"ports": [{"port": 8080}]})
    config = theirs("ConfigMap", "chat-live", namespace, data={"config.json": "mine"})
    secret = theirs("Secret", "chat-internal", namespace, stringData={"tokens": "mine"})
    api_cluster.api.apply(shop, config, secret)
    make(api_cluster, namespace)
    words = wait_for_reason(api_cluster, namespace, "NameInUse")

    for what in ("Service chat:", "ConfigMap chat-live:", "Secret chat-internal:"):
        assert what in words
    assert "another name" in words
    assert get(api_cluster, "deployment", namespace, "chat-l4") is not None  # all else is made
    here = f"--namespace={namespace}"
    api_cluster.api.call("delete", "qis/chat", here, "--timeout=60s")
    wait_until(lambda: get(api_cluster, "deployment", namespace, "chat-l4") is None)
    ports = [one["port"] for one in get(api_cluster, "service", namespace, "chat")["spec"]["ports"]]
    assert ports == [8080]
    data = get(api_cluster, "configmap", namespace, "chat-live")["data"]
    assert data == {"config.json": "mine"}
    text = api_cluster.api.call("get", "secret/chat-internal", here, "-o", "json")
    assert "ownerReferences" not in json.loads(text)["metadata"]


def test_two_services_that_need_one_name_do_not_fight_over_it(
    api_cluster: Cluster, operator: RunningOperator, namespace: str
) -> None:
    make(api_cluster, namespace, "chat-engines")
    wait_for_status(api_cluster, namespace, "chat-engines")
    wait_until(lambda: get(api_cluster, "service", namespace, "chat-engines") is not None)
    make(api_cluster, namespace, "chat")
    words = wait_for_reason(api_cluster, namespace, "NameInUse")

    assert "Service chat-engines: there is one already, of InferenceService chat-engines" in words
    service = get(api_cluster, "service", namespace, "chat-engines")
    (owner,) = service["metadata"]["ownerReferences"]
    assert owner["name"] == "chat-engines"
    assert get(api_cluster, "service", namespace, "chat") is not None  # all else is made


def test_a_gateways_label_elsewhere_makes_no_gateway(
    api_cluster: Cluster, operator: RunningOperator, namespace: str
) -> None:
    for place, address in ((namespace, "10.9.9.9"), (GATEWAYS, "10.8.8.8")):
        _make_gateway(api_cluster, place, address)
    make(api_cluster, namespace)
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices/chat-gateway-ipv4"

    def addresses() -> list[str]:
        endpoints = (api_cluster.api.get(path) or {}).get("endpoints") or ()
        return [address for one in endpoints for address in one["addresses"]]

    wait_until(lambda: addresses() == ["10.8.8.8"])
    assert degraded(api_cluster, namespace)[0] != "NoGateway"
    api_cluster.api.call("delete", "pod/gateway", f"-n={GATEWAYS}", "--grace-period=0", "--force")
    wait_until(lambda: addresses() == [])
    assert GATEWAYS in wait_for_reason(api_cluster, namespace, "NoGateway")


def _make_gateway(cluster: Cluster, namespace: str, address: str) -> None:
    """A pod with the gateway's label, ready as far as its status says."""
    labels = {"serving.quire.dev/role": "gateway"}
    body = theirs("Pod", "gateway", namespace, spec={"containers": [{"name": "a", "image": "b"}]})
    body["metadata"]["labels"] = labels
    cluster.api.apply(body)
    status = {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    patch = json.dumps({"status": status})
    cluster.api.call(
        "patch", "pod/gateway", f"-n={namespace}", "--subresource=status", f"-p={patch}"
    )


def test_hand_edits_that_no_generation_tells_of_are_put_right(
    api_cluster: Cluster, operator: RunningOperator, namespace: str
) -> None:
    make(api_cluster, namespace)
    wait_for_status(api_cluster, namespace)
    wait_until(lambda: get(api_cluster, "deployment", namespace, "chat-l4"))
    before = get(api_cluster, "deployment", namespace, "chat-l4")
    template = json.loads(before["metadata"]["annotations"]["serving.quire.dev/pod-template"])
    template["spec"]["containers"][0]["image"] = "another:1"
    here = f"--namespace={namespace}"
    for spoilt in (json.dumps(template), '{"spec":{}}', "{"):
        api_cluster.api.call(
            "annotate",
            "--overwrite",
            "deployment/chat-l4",
            here,
            f"serving.quire.dev/pod-template={spoilt}",
        )
        wait_until(lambda: _kept(api_cluster, namespace) == _kept_in(before))
    api_cluster.api.call(
        "label", "--overwrite", "deployment/chat-l4", here, "app.kubernetes.io/name=x"
    )
    api_cluster.api.call("rollout", "pause", "deployment/chat-l4", here)
    container = {"name": "miner", "image": "evil/miner:1"}
    patch = json.dumps({"spec": {"template": {"spec": {"containers": [container]}}}})
    api_cluster.api.call("patch", "deployment/chat-l4", here, f"-p={patch}")

    def is_right() -> bool:
        body = get(api_cluster, "deployment", namespace, "chat-l4")
        label = body["metadata"]["labels"]["app.kubernetes.io/name"]
        containers = [one["name"] for one in body["spec"]["template"]["spec"]["containers"]]
        is_paused = body["spec"].get("paused", False)
        return label == "quire-engine" and not is_paused and containers == ["engine"]

    wait_until(is_right)
    after = get(api_cluster, "deployment", namespace, "chat-l4")
    assert after["spec"]["template"] == before["spec"]["template"]
    # a restart that somebody asks for stays
    api_cluster.api.call("rollout", "restart", "deployment/chat-l4", here)
    make(api_cluster, namespace, replicas=3)
    wait_for_status(api_cluster, namespace)
    wait_until(
        lambda: get(api_cluster, "deployment", namespace, "chat-l4")["spec"]["replicas"] == 3,
    )
    last = get(api_cluster, "deployment", namespace, "chat-l4")["spec"]["template"]
    assert "kubectl.kubernetes.io/restartedAt" in last["metadata"]["annotations"]


def test_what_others_add_beside_ours_goes(
    api_cluster: Cluster, operator: RunningOperator, namespace: str
) -> None:
    make(api_cluster, namespace)
    wait_for_status(api_cluster, namespace)
    parts = {"service": "chat", "pdb": "chat-engines"}
    wait_until(lambda: all(get(api_cluster, k, namespace, n) for k, n in parts.items()))
    before = {kind: get(api_cluster, kind, namespace, name) for kind, name in parts.items()}
    # another selector is taken beside ours; another port of the same name, and another way to
    # count, make ours invalid
    added: list[tuple[str, Body]] = [
        ("service", {"selector": {"app": "theirs"}}),
        ("service", {"ports": [{"name": "http", "port": 81}]}),
        ("pdb", {"maxUnavailable": None, "minAvailable": 1}),
    ]

    def is_right() -> bool:
        now = {kind: get(api_cluster, kind, namespace, name) for kind, name in parts.items()}
        return all(now[kind]["spec"] == before[kind]["spec"] for kind in parts)

    for kind, spec in added:
        what = (f"{kind}/{parts[kind]}", f"--namespace={namespace}", "--type=merge")
        api_cluster.api.call("patch", *what, f"-p={json.dumps({'spec': spec})}")
        wait_until(is_right)
    make(api_cluster, namespace, replicas=3)
    wait_for_status(api_cluster, namespace)
    assert degraded(api_cluster, namespace)[0] != "ApplyRefused"


def test_what_others_add_to_an_ingress_goes_and_the_clusters_own_class_stays(
    api_cluster: Cluster, operator: RunningOperator, namespace: str
) -> None:
    annotations = {"ingressclass.kubernetes.io/is-default-class": "true"}
    made: Body = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IngressClass",
        "metadata": {"name": "public", "annotations": annotations},
        "spec": {"controller": "example.com/nobody"},
    }
    api_cluster.api.apply(made)
    try:
        _spoil_an_ingress(api_cluster, namespace, "public")
    finally:
        api_cluster.api.call("delete", "ingressclass/public")


def test_a_class_that_others_give_an_ingress_goes_where_none_is_the_default(
    api_cluster: Cluster, operator: RunningOperator, namespace: str
) -> None:
    _spoil_an_ingress(api_cluster, namespace, None)


def test_a_class_of_an_ingress_stays_where_a_policy_hides_the_clusters_own(
    api_cluster: Cluster, operator: RunningOperator, namespace: str
) -> None:
    make(api_cluster, namespace, **WAY_IN)
    wait_until(lambda: get(api_cluster, "ingress", namespace, "chat") is not None)
    what = ("ingress/chat", f"--namespace={namespace}", "--type=merge")
    rules = [
        {
            "apiGroups": ["networking.k8s.io"],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["ingresses"],
        }
    ]
    policy = {
        "matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": "has(object.spec.rules)", "message": "needs rules"}],
    }
    binding = {"policyName": "ingresses", "validationActions": ["Deny"]}
    for kind, spec in (("Policy", policy), ("PolicyBinding", binding)):
        group = {"apiVersion": "admissionregistration.k8s.io/v1"}
        metadata = {"name": "ingresses"}
        made = group | {"kind": f"ValidatingAdmission{kind}", "metadata": metadata, "spec": spec}
        api_cluster.api.apply(made)
    tried = ("create", "ingress", "trial", what[1], "--default-backend=a:80", "--dry-run=server")
    try:
        wait_until(lambda: "needs rules" in api_cluster.api.run(*tried).stderr)
        theirs = {"ingressClassName": "theirs", "tls": [{"hosts": ["theirs.example.com"]}]}
        api_cluster.api.call("patch", *what, f"-p={json.dumps({'spec': theirs})}")
        wait_until(lambda: "tls" not in get(api_cluster, "ingress", namespace, "chat")["spec"])
        spec = get(api_cluster, "ingress", namespace, "chat")["spec"]
        assert spec["ingressClassName"] == "theirs"
    finally:
        kinds = "validatingadmissionpolicies,validatingadmissionpolicybindings"
        api_cluster.api.call("delete", kinds, "ingresses")


def _spoil_an_ingress(cluster: Cluster, namespace: str, default: str | None) -> None:
    what = ("ingress/chat", f"--namespace={namespace}")

    def now() -> Body:
        found: Body = get(cluster, "ingress", namespace, "chat")
        return found

    make(cluster, namespace, **WAY_IN)
    wait_until(lambda: now() is not None)
    before = now()["spec"]
    assert before.get("ingressClassName") == default
    backend = {"service": {"name": "theirs", "port": {"number": 80}}}
    added: list[Body] = [
        {"ingressClassName": "none"},
        {"defaultBackend": backend},
        {"tls": [{"hosts": ["theirs.example.com"], "secretName": "theirs"}]},
        {"ingressClassName": "none", "defaultBackend": backend},
    ]
    for one in added:
        patch = ("--type=merge", f"-p={json.dumps({'spec': one})}")
        cluster.api.call("patch", *what, *patch)
        wait_until(lambda: now()["spec"] == before)
    # nor is the class taken for somebody's now: writes change it no more
    seen = now()["metadata"]["generation"]
    for value in ("x", "y"):
        cluster.api.call("label", "--overwrite", *what, f"{NAME_LABEL}={value}")
        wait_until(lambda: now()["metadata"]["labels"][NAME_LABEL] not in ("x", "y"))
    assert now()["metadata"]["generation"] == seen


def test_what_somebody_made_immutable_is_made_anew_or_the_remedy_said(
    api_cluster: Cluster, operator: RunningOperator, namespace: str
) -> None:
    here = f"--namespace={namespace}"

    def patch(what: str, **patch: Any) -> None:
        flags = ("--type=merge", f"-p={json.dumps(patch | {'immutable': True})}")
        api_cluster.api.call("patch", what, here, *flags)

    def may_change(name: str) -> bool:
        found = get(api_cluster, "configmap", namespace, name)
        return found is not None and "immutable" not in found

    make(api_cluster, namespace)
    wait_for_status(api_cluster, namespace)
    before = tokens(api_cluster, namespace)
    maps = ("chat-live", "chat-routing")
    for name in maps:
        patch(f"configmap/{name}")
    assert not any(map(may_change, maps))
    make(api_cluster, namespace, memoryPressure={"admission": 71})  # both tell of it
    wait_until(lambda: all(map(may_change, maps)))

    patch("secret/chat-internal", stringData={"tokens": "theirs"})
    remedy = f"`kubectl delete secret chat-internal {here}`"
    wait_until(lambda: remedy in degraded(api_cluster, namespace)[1])
    assert degraded(api_cluster, namespace)[0] == "ApplyRefused"
    api_cluster.api.call("delete", "secret/chat-internal", here)
    wait_until(lambda: tokens(api_cluster, namespace) == before)
    wait_until(lambda: degraded(api_cluster, namespace)[0] != "ApplyRefused")


def _kept(cluster: Cluster, namespace: str) -> str:
    return _kept_in(get(cluster, "deployment", namespace, "chat-l4"))


def _kept_in(deployment: Body) -> str:
    text: str = deployment["metadata"]["annotations"]["serving.quire.dev/pod-template"]
    return text


def test_the_tokens_of_engines_are_put_right_while_engines_do_not_answer(
    api_cluster: Cluster, operator: RunningOperator, namespace: str
) -> None:
    make(api_cluster, namespace)
    wait_for_status(api_cluster, namespace)
    here = f"--namespace={namespace}"
    before = tokens(api_cluster, namespace)
    api_cluster.api.call("delete", "secret/chat-internal", here)
    wait_until(lambda: tokens(api_cluster, namespace) == before)
    api_cluster.api.call(
        "patch", "secret/chat-internal", here, "--type=merge", '-p={"stringData":{"tokens":"x"}}'
    )
    wait_until(lambda: tokens(api_cluster, namespace) == before)

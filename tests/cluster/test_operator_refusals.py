"""What a real API server does not take: said in its words, and done once it takes it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.cluster.cluster import Cluster
from quire_operator.resource.crd import crd
from tests.api.servers import wait_until
from tests.cluster.operators import RunningOperator
from tests.cluster.services import Body, get, make, reasons, wait_for_status
from tests.cluster.test_operator_keys import degraded, wait_for_reason

L4 = {"name": "l4", "products": ["NVIDIA-L4"]}
RULE = "the platform team allows no such ConfigMap here"


@pytest.fixture(scope="module")
def operator(
    kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningOperator]:
    log = tmp_path_factory.mktemp("refusals") / "operator.log"
    with RunningOperator(kubeconfig, log, "--lease-seconds=3") as one:
        yield one


@pytest.fixture
def namespace(api_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own."""
    name = request.node.name.replace("_", "-")[:40].strip("-")
    api_cluster.api.call("create", "namespace", name)
    yield name
    api_cluster.api.call("delete", "namespace", name, "--wait=false")


def quota(namespace: str, **hard: str) -> Body:
    """A limit of what there may be."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small", "namespace": namespace},
        "spec": {
            "hard": {
                name.replace("__", ".").replace("_", "/"): value for name, value in hard.items()
            }
        },
    }


def test_a_quota_of_objects_is_said_and_all_others_are_made(
    api_cluster: Cluster, operator: RunningOperator, namespace: str
) -> None:
    api_cluster.api.apply(quota(namespace, count_deployments__apps="0"))
    make(api_cluster, namespace)
    words = wait_for_reason(api_cluster, namespace, "ApplyRefused")

    assert "Deployment chat-l4: " in words
    assert "exceeded quota: small" in words
    assert get(api_cluster, "configmap", namespace, "chat-routing") is not None
    assert get(api_cluster, "service", namespace, "chat") is not None
    wait_until(lambda: "ApplyRefused" in reasons(api_cluster, namespace))

    api_cluster.api.call("delete", "resourcequota/small", f"-n={namespace}")
    wait_until(lambda: get(api_cluster, "deployment", namespace, "chat-l4") is not None)
    wait_until(lambda: degraded(api_cluster, namespace)[0] != "ApplyRefused")
    assert reasons(api_cluster, namespace).count("ApplyRefused") == 1  # not once for each try


def test_a_quota_of_pods_is_said(
    api_cluster: Cluster, operator: RunningOperator, namespace: str
) -> None:
    api_cluster.api.apply(quota(namespace, pods="0"))
    make(api_cluster, namespace)

    assert "exceeded quota: small" in wait_for_reason(api_cluster, namespace, "PodsRefused")


def test_the_words_of_an_admission_policy_are_said(
    api_cluster: Cluster, operator: RunningOperator, namespace: str
) -> None:
    policy, binding = _admission(namespace)
    api_cluster.api.apply(policy, binding)
    try:
        probe = ("create", "configmap", "chat-live", "--dry-run=server", f"-n={namespace}")
        wait_until(lambda: RULE in api_cluster.api.run(*probe).stderr)
        make(api_cluster, namespace)
        assert RULE in wait_for_reason(api_cluster, namespace, "ApplyRefused")
        wait_for_status(api_cluster, namespace)
        assert get(api_cluster, "deployment", namespace, "chat-l4") is not None
        assert get(api_cluster, "configmap", namespace, "chat-live") is None
    finally:
        kinds = "validatingadmissionpolicy,validatingadmissionpolicybinding"
        api_cluster.api.call("delete", kinds, f"only-{namespace}")
    wait_until(lambda: get(api_cluster, "configmap", namespace, "chat-live") is not None)


def _admission(namespace: str) -> tuple[Body, Body]:
    """A rule that refuses one of the objects, in one namespace."""
    group = "admissionregistration.k8s.io/v1"
    name = f"only-{namespace}"
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    configs = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["configmaps"],
    }
    policy = {
        "apiVersion": group,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"namespaceSelector": here, "resourceRules": [configs]},
            "validations": [{"expression": "object.metadata.name != 'chat-live'", "message": RULE}],
        },
    }
    binding = {
        "apiVersion": group,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    return policy, binding


def test_a_spec_of_a_newer_version_is_said_not_to_be_understood(
    api_cluster: Cluster, operator: RunningOperator, namespace: str
) -> None:
    newer = crd()
    model = newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    model["properties"]["model"]["properties"]["quantization"]["enum"].append("int2")
    try:
        api_cluster.api.apply(newer)
        patch = '{"spec": {"model": {"quantization": "int2"}}}'
        make(api_cluster, namespace)
        wait_until(lambda: get(api_cluster, "deployment", namespace, "chat-l4") is not None)
        edit = ("patch", "qis/chat", f"-n={namespace}", "--type=merge", f"--patch={patch}")
        wait_until(lambda: api_cluster.api.run(*edit).returncode == 0)

        words = wait_for_reason(api_cluster, namespace, "SpecNotUnderstood")
        assert "int2" in words
        assert "upgrade the operator" in words
        said = get(api_cluster, "qis", namespace, "chat")
        assert said is not None
        ready = next(one for one in said["status"]["conditions"] if one["type"] == "Ready")
        assert (ready["status"], ready["observedGeneration"]) == ("False", 2)
        assert said["status"]["accelerators"]  # what was known stays
        assert get(api_cluster, "deployment", namespace, "chat-l4") is not None

        api_cluster.api.call(*edit[:-1], '--patch={"spec": {"model": {"quantization": "none"}}}')
        wait_until(lambda: degraded(api_cluster, namespace)[0] != "SpecNotUnderstood")
    finally:
        api_cluster.api.apply(crd())


def test_a_status_that_is_not_taken_is_said_without_its_figures(
    api_cluster: Cluster, operator: RunningOperator, namespace: str
) -> None:
    older = crd()
    schema = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    schema["status"]["properties"]["hourlyCost"]["maxLength"] = 3
    try:
        api_cluster.api.apply(older)
        make(api_cluster, namespace, accelerators=[L4 | {"costPerHour": "123.45"}])
        words = wait_for_reason(api_cluster, namespace, "StatusRefused")
        assert "hourlyCost" in words
    finally:
        api_cluster.api.apply(crd())
    wait_until(lambda: degraded(api_cluster, namespace)[0] != "StatusRefused")


@pytest.fixture
def older_kind(api_cluster: Cluster, operator: RunningOperator) -> Iterator[None]:
    """A kind from before a field of the status, until the test's end."""
    older = crd()
    schema = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["status"]["properties"]["hourlyCost"]
    api_cluster.api.apply(older)
    yield
    api_cluster.api.apply(crd())


def test_a_kind_older_than_the_operator_is_told_of_and_engines_are_made(
    api_cluster: Cluster, operator: RunningOperator, older_kind: None, namespace: str
) -> None:
    make(api_cluster, namespace)
    words = "is older than this operator: `kubectl apply --server-side -f manifests/crds`"
    wait_until(lambda: words in operator.log.read_text())
    assert get(api_cluster, "deployment", namespace, "chat-l4") is not None

    api_cluster.api.apply(crd())
    wait_for_status(api_cluster, namespace)

"""The CRD on a real API server: what is wrong is refused with what to do, the rest is taken."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from hack.cluster.cluster import Cluster
from quire_operator.resource.crd import NAME, crd
from quire_operator.resource.reading import read
from tests.cluster.services import SMALL, Body, apply, service

pytestmark = pytest.mark.usefixtures("inference_services")

L4: Body = {"name": "l4", "products": ["NVIDIA-L4"]}
PUBLIC = {"access": {"public": True}}
HOST = {"host": "models.example.com"}
FULL: Body = {
    "replicas": 2,
    "suspend": False,
    "priority": 5,
    "model": {
        "source": "hf://Qwen/Qwen3-8B@main",
        "name": "qwen3-8b",
        "aliases": ["a", "b"],
        "maxModelLen": 8192,
        "quantization": "none",
        "tokenSecretRef": {"name": "hf-token"},
        "cache": {"pvc": "model-cache"},
    },
    "engine": {"blockSize": 32, "maxNumSeqs": 256, "extraArgs": ["--log-requests"]},
    "accelerators": [
        L4 | {"costPerHour": "0.80", "minReplicas": 0, "maxReplicas": 8, "provisionTimeout": "3m"},
        {
            "name": "h100",
            "products": ["NVIDIA-H100-80GB-HBM3"],
            "pod": {
                "image": f"registry.example.com:5000/team/engine_x:1.0-rc@sha256:{'0' * 64}",
                "tolerations": [
                    {"key": "example.com/spot", "operator": "Exists"},
                    {"key": "a", "value": "b"},
                    {"operator": "Exists"},
                ],
                "nodeSelector": {"example.com/pool": "gpus", "empty": ""},
                "annotations": {"Example.com/note": "x", "a" * 63: "y"},
                "resources": {
                    "requests": {"cpu": 4, "memory": "16Gi", "hugepages-2Mi": "4Mi"},
                    "limits": {
                        "cpu": "4000m",
                        "memory": "17Gi",
                        "hugepages-2Mi": "4096Ki",
                        "example.com/device": "2",
                    },
                },
                "env": [
                    {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                    {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
                    {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                    {
                        "name": "D",
                        "valueFrom": {
                            "resourceFieldRef": {"resource": "limits.memory", "divisor": "1024Ki"}
                        },
                    },
                    {
                        "name": "E",
                        "valueFrom": {
                            "fieldRef": {"fieldPath": "metadata.labels['example.com/a']"}
                        },
                    },
                ],
            },
        },
    ],
    "scaling": {
        "mode": "External",
        "minReplicas": 0,
        "scaleToZeroAfter": "10m",
        "maxCostPerHour": "30",
        "slo": {"timeToFirstToken": "2s", "timePerOutputToken": "60ms", "percentile": 95},
    },
    "memoryPressure": {"target": 75, "background": 80, "admission": 95},
    "access": {"apiKeysSecretRef": {"name": "chat-keys"}},
    "ingress": HOST | {"className": "contour", "tlsSecretName": "models-tls"},
}


def field(path: str, **more: str) -> Body:
    """A variable that is a field of the pod."""
    return {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": path, **more}}}


def amount(resource: str, **more: str) -> Body:
    """A variable that is an amount of the container's resources."""
    return {"name": "A", "valueFrom": {"resourceFieldRef": {"resource": resource, **more}}}


REFUSED: list[tuple[str, Body, str]] = [
    ("accelerators", {"accelerators": [L4 | {"minReplicas": 3, "maxReplicas": 2}]}, "lower it"),
    ("accelerators", {"accelerators": [{"name": "l4"}]}, "products is needed"),
    ("accelerators", {"accelerators": [{"name": "cpu", "products": ["a"]}]}, "have no products"),
    ("accelerators", {"accelerators": [{"name": "simulated"}]}, "needs simulate"),
    (
        "accelerators",
        {"accelerators": [{"name": "cpu", "simulate": {"gpu": "l4", "modelShape": "m"}}]},
        "call one that only simulates simulated",
    ),
    ("accelerators", {"accelerators": []}, "should have at least 1 items"),
    ("accelerators", {"accelerators": [L4, L4]}, "Duplicate value"),
    ("accelerators", {"accelerators": [L4 | {"count": 0}]}, "greater than or equal to 1"),
    ("accelerators", {"accelerators": [L4 | {"costPerHour": "cheap"}]}, "costPerHour"),
    ("accelerators", {"accelerators": [L4 | {"provisionTimeout": "3 minutes"}]}, "should match"),
    ("accelerators", {"accelerators": [L4 | {"provisionTimeout": "25h"}]}, "must be at most 24h"),
    (
        "accelerators",
        {
            "accelerators": [L4 | {"minReplicas": 9, "maxReplicas": 9}],
            "scaling": {"maxReplicas": 4},
        },
        "together are more than scaling.maxReplicas",
    ),
    (
        "accelerators",
        {"accelerators": [L4 | {"maxReplicas": 2}], "scaling": {"minReplicas": 3}},
        "together are less than scaling.minReplicas",
    ),
    (
        "pod",
        {"accelerators": [L4 | {"pod": {"resources": {"limits": {"nvidia.com/gpu": 2}}}}]},
        "nvidia.com/gpu is set from the accelerator's count",
    ),
    (
        "pod",
        {"accelerators": [L4 | {"pod": {"labels": {"serving.quire.dev/role": "x"}}}]},
        "labels are quire's own",
    ),
    (
        "pod",
        {"accelerators": [L4 | {"pod": {"env": [{"name": "A", "value": "", "valueFrom": {}}]}}]},
        "give value or valueFrom, not both",
    ),
    *(
        ("pod", {"accelerators": [L4 | {"pod": overrides}]}, words)
        for overrides, words in (
            ({"env": [{"name": "HOME", "value": "/"}]}, "are set by the operator: leave them out"),
            ({"env": [{"name": "A", "valueFrom": {}}]}, "give one of secretKeyRef"),
            ({"env": [{"name": "A", "valueFrom": {"nonsense": {}}}]}, "nonsense"),
            (
                {"env": [{"name": f"A{index}", "value": "x" * 4096} for index in range(9)]},
                "more than 32768 characters together",
            ),
            ({"annotations": {f"a{index}": "x" * 4096 for index in range(5)}}, "more than 16384"),
            ({"tolerations": [{"operator": "Exists", "value": "x"}]}, "looks at no value"),
            ({"tolerations": [{"value": "x"}]}, "key is needed with operator Equal"),
            ({"tolerations": [{"key": "a", "tolerationSeconds": 5}]}, "for effect NoExecute alone"),
            ({"nodeSelector": {"bad key!": "x"}}, "a key is no name of a label"),
            ({"nodeSelector": {"pool": "x y"}}, "should match"),
            ({"nodeSelector": {"a" * 64: "x"}}, "a key is no name of a label"),
            ({"annotations": {"A/B/C": "x"}}, "a key is no name of an annotation"),
            ({"image": "@@@"}, "is no image's name"),
            ({"image": "engine:a:b"}, "is no image's name"),
            ({"tolerations": [{"key": "a b"}]}, "key is no name of a taint"),
            ({"env": [field("nope")]}, "fieldPath is none that a variable can have"),
            ({"env": [field("metadata.labels")]}, "fieldPath is none that a variable can have"),
            ({"env": [field("metadata.name", apiVersion="v2")]}, "apiVersion is v1"),
            ({"env": [amount("cpu")]}, "resource is none that a variable can have"),
            ({"env": [amount("limits.cpu", divisor="1k")]}, "divisor is no unit"),
            ({"resources": {"requests": {"bogus": 1}}}, "a key is no resource of a pod"),
            ({"resources": {"limits": {"a.b/c": "1500m"}}}, "whole numbers only"),
            ({"resources": {"requests": {"a.b/c": 1}}}, "needs a limit that is its request"),
            ({"resources": {"requests": {"cpu": -5}}}, "greater than or equal to 0"),
            (
                {"resources": {"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}},
                "a request is more than its limit",
            ),
        )
    ),
    ("model", {"model": {"source": "s3://bucket/model"}}, "s3:// and gs:// are not read"),
    ("model", {"model": {"source": "Qwen/Qwen3-8B"}}, "where the model is: hf://organisation/"),
    ("model", {"model": {"source": "pvc://../x"}}, "with the name of a PersistentVolumeClaim"),
    ("model", {"model": {"source": "https://[::1/x"}}, "https://host:port/file"),
    ("model", {"model": {"source": "https://h:99999/x"}}, "https://host:port/file"),
    ("model", {"model": {"source": "hf://acme/no\u00a0break"}}, "should match"),
    ("model", {"model": {"source": "hf://repository"}}, "hf://organisation/repository@revision"),
    ("model", {"model": {"source": "pvc://claim"}}, "a pvc:// source is pvc://claim/path"),
    ("model", {"model": {"source": "pvc://claim/../../etc"}}, "has no . or .. in its path: say"),
    ("model", {"model": {"source": "pvc://claim/m/.."}}, "has no . or .. in its path: say"),
    ("model", {"model": {"source": "pypi://package/x"}}, "a pypi:// source needs a version"),
    (
        "model",
        {"model": {"source": "https://h/m.gguf", "tokenSecretRef": {"name": "t"}}},
        "tokenSecretRef is for hf:// sources only",
    ),
    ("model", {"model": {"source": "hf://a/b", "sha256": "abc"}}, "should match"),
    ("engine", {"engine": {"blockSize": 17}}, 'supported values: "16", "32", "64"'),
    (
        "engine",
        {"engine": {"maxNumSeqs": 512, "maxNumBatchedTokens": 256}},
        "maxNumBatchedTokens is less than maxNumSeqs",
    ),
    ("engine", {"engine": {"extraArgs": ["--port=1"]}}, "extraArgs has a flag that other fields"),
    ("engine", {"engine": {"extraArgs": ["--seed", "7"]}}, "write each as --flag=value"),
    ("scaling", {"scaling": {"minReplicas": 5, "maxReplicas": 4}}, "minReplicas is more than"),
    ("scaling", {"scaling": {"scaleToZeroAfter": "5m"}}, "only for minReplicas 0"),
    (
        "scaling",
        {"scaling": {"minReplicas": 0, "scaleToZeroAfter": "9999999999999h"}},
        'scaleToZeroAfter: Invalid value: "9999999999999h": must be at most 24h\n',
    ),
    ("scaling", {"scaling": {"slo": {"timeToFirstToken": "99999h"}}}, "must be at most 24h\n"),
    ("scaling", {"scaling": {"mode": "Magic"}}, "supported values"),
    ("scaling", {"scaling": {"slo": {"timeToFirstToken": "0.0s"}}}, "must be more than 0s"),
    ("memoryPressure", {"memoryPressure": {"background": 96}}, "background is more than admission"),
    ("memoryPressure", {"memoryPressure": {"admission": 101}}, "less than or equal to 100"),
    ("ingress", {"ingress": HOST}, "ingress needs access.apiKeysSecretRef"),
    ("ingress", {"ingress": {"host": "http://x"}} | PUBLIC, "should match"),
    ("ingress", {"ingress": {"host": "a..b"}} | PUBLIC, "should match"),
    (
        "ingress",
        {"ingress": {"host": "victim.other.svc.cluster.local"}} | PUBLIC,
        "is an address inside the cluster",
    ),
    ("ingress", {"ingress": {"host": "victim.other.svc"}} | PUBLIC, "is an address inside"),
    ("ingress", {"ingress": {"host": "127.0.0.1"}} | PUBLIC, "is no domain's name"),
    ("ingress", {"ingress": {"host": "quire-gateway"}} | PUBLIC, "is no domain's name"),
    ("ingress", {"ingress": {"host": "a" * 64 + ".com"}} | PUBLIC, "more than 63 characters"),
    (
        "ingress",
        {"ingress": HOST | {"annotations": {"a b": "x"}}} | PUBLIC,
        "a key is no name of an annotation",
    ),
    ("spec", {"memoryPresure": {}}, 'unknown field "spec.memoryPresure"'),
]


@pytest.fixture(scope="module")
def inference_services(api_cluster: Cluster) -> Iterator[None]:
    """The CRD is there; afterwards it is not."""
    api_cluster.api.apply(crd())
    api_cluster.api.wait_established(f"crd/{NAME}")
    api_cluster.api.call("get", NAME)  # kubectl explain does not look anew for kinds, as get does
    yield
    api_cluster.api.call("delete", f"crd/{NAME}", "--timeout=60s")


@pytest.mark.parametrize(
    ("spec", "message"),
    [(spec, message) for _, spec, message in REFUSED],
    ids=[f"{field}-{index}" for index, (field, _, _) in enumerate(REFUSED)],
)
def test_what_is_wrong_is_refused_with_field_and_what_to_do(
    api_cluster: Cluster, spec: Body, message: str
) -> None:
    answer = apply(api_cluster, service(**spec), "--dry-run=server")

    assert answer.returncode != 0
    assert message in answer.stderr


def test_every_rule_has_an_example_that_it_refuses() -> None:
    messages = list(_messages(crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))
    elsewhere = ("replicas is quire's", "metadata.name")
    unproven = [
        message
        for message in messages
        if not any(said in message for _, _, said in REFUSED) and not message.startswith(elsewhere)
    ]
    assert unproven == []


def _messages(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for rule in schema.get("x-kubernetes-validations", ()):
            yield rule["message"]
        for below in schema.values():
            yield from _messages(below)


@pytest.mark.parametrize(
    ("name", "message"),
    [("a" * 41, "metadata.name is too long"), ("9lives", "begin with a letter")],
)
def test_names_that_nothing_can_be_made_of_are_refused(
    api_cluster: Cluster, name: str, message: str
) -> None:
    answer = apply(api_cluster, service(name), "--dry-run=server")
    assert answer.returncode != 0
    assert message in answer.stderr


def test_everything_that_there_is_is_taken(api_cluster: Cluster) -> None:
    for spec in (FULL, SMALL["spec"], SMALL["spec"] | {"ingress": HOST} | PUBLIC):
        answer = apply(api_cluster, SMALL | {"spec": spec}, "--dry-run=server")
        assert answer.returncode == 0, answer.stderr


def test_scale_is_for_people_only_where_the_mode_says_so(api_cluster: Cluster) -> None:
    apply(api_cluster, service("scaled")).check_returncode()
    refused = api_cluster.api.run("scale", "qis/scaled", "--replicas=3")
    assert refused.returncode != 0
    assert "replicas is quire's to decide while scaling.mode is Auto" in refused.stderr

    apply(api_cluster, service("scaled", scaling={"mode": "External"})).check_returncode()
    api_cluster.api.call("scale", "qis/scaled", "--replicas=3")
    scale = json.loads(
        api_cluster.api.call(
            "get",
            "--raw",
            "/apis/serving.quire.dev/v1alpha1/namespaces/default/inferenceservices/scaled/scale",
        )
    )
    assert scale["spec"]["replicas"] == 3
    # back to Auto in the same write as another number: quire begins from there
    apply(api_cluster, service("scaled", replicas=1, scaling={"mode": "Auto"})).check_returncode()
    api_cluster.api.call("delete", "qis/scaled")


def test_every_field_is_explained(api_cluster: Cluster) -> None:
    for path in ("spec.memoryPressure", "spec.accelerators.pod", "status.conditions"):
        text = api_cluster.api.call("explain", f"inferenceservices.{path}", "--recursive")
        assert "<no description>" not in text
    explained = api_cluster.api.call("explain", "qis.spec.memoryPressure.admission")
    assert "Interactive requests are admitted up to here." in explained


def test_columns_and_categories(api_cluster: Cluster) -> None:
    apply(api_cluster, service("shown")).check_returncode()
    head = api_cluster.api.call("get", "quire", "-o", "wide").splitlines()[0].split()
    api_cluster.api.call("delete", "qis/shown")

    assert head == [
        "NAME",
        "MODEL",
        "READY",
        "DESIRED",
        "AVAILABLE",
        "URL",
        "REASON",
        "AGE",
        "ACCELERATORS",
        "BLOCKS",
        "LOADING",
        "TOKENS/S",
        "COST",
    ]


def test_admission_alone_is_lowered_below_targets_and_backgrounds_defaults(
    api_cluster: Cluster,
) -> None:
    lowered = service(memoryPressure={"admission": 60})
    answer = apply(api_cluster, lowered, "--dry-run=server", "-o", "json")

    assert answer.returncode == 0, answer.stderr
    pressure = read(json.loads(answer.stdout)).spec.memory_pressure
    assert (pressure.target, pressure.background_limit, pressure.admission) == (75, 60, 60)


def test_defaults_are_filled_in(api_cluster: Cluster) -> None:
    answer = apply(api_cluster, service(), "--dry-run=server", "-o", "json")
    spec = json.loads(answer.stdout)["spec"]

    assert spec["memoryPressure"] == {"target": 75, "admission": 95}
    assert spec["scaling"]["mode"] == "Auto"
    assert spec["engine"]["maxNumSeqs"] == 256
    assert spec["accelerators"][0]["provisionTimeout"] == "3m"

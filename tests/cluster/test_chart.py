"""The chart without installing it: Helm's own checks, and the API server's word for each object."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hack.chart.install import NAMESPACE, chart_digest, is_fresh
from hack.chart.values import CHART
from hack.cluster.binaries import provide_tool
from hack.cluster.catalogue import MONITORING_CRDS
from hack.cluster.cluster import Cluster
from quire_gateway import settings as gateway_settings
from quire_operator import settings as operator_settings
from quire_operator.planner.names import GATEWAY_TLS_LABEL
from tests.cluster.helm import VALUES, Body, Helm, flags_of

PLACES = (NAMESPACE, "team-a", "team-b")
INSTALL = CHART.parents[1] / "manifests" / "install.yaml"
each_values_file = pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def cluster(api_cluster: Cluster) -> Iterator[Cluster]:
    """With namespaces that ask for restricted pods, and the kinds of the Prometheus Operator."""
    api = api_cluster.api
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    for name in PLACES:
        metadata = {"name": name, "labels": label}
        api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    kinds = [str(path) for path in provide_tool(MONITORING_CRDS).iterdir()]
    files = [f"--filename={path}" for path in kinds]
    api.call("apply", "--server-side", *files)
    api.wait_established(*files)
    yield api_cluster
    api.call("delete", *files, "--timeout=60s")
    api.call("delete", "namespace", *PLACES, "--timeout=110s")


def labels_of_gateways(objects: list[Body]) -> Body:
    """Of the pods of the gateway."""
    (template,) = (
        one["spec"]["template"]
        for one in objects
        if (one["kind"], one["metadata"]["name"]) == ("Deployment", "quire-gateway")
    )
    labels: Body = template["metadata"]["labels"]
    return labels


@each_values_file
def test_helm_finds_nothing_to_remark(helm: Helm, values: Path) -> None:
    said = helm.call("lint", "--strict", CHART, f"--values={values}")
    assert "1 chart(s) linted, 0 chart(s) failed" in said
    assert "[WARNING]" not in said


@each_values_file
def test_the_api_server_takes_all_of_it(cluster: Cluster, helm: Helm, values: Path) -> None:
    text = helm.render(f"--values={values}")
    flags = ("--server-side", "--dry-run=server", "--validate=strict")
    answer = cluster.api.run("apply", *flags, "--filename=-", stdin=text)

    assert answer.returncode == 0, answer.stderr
    assert not answer.stderr  # there are warnings: of Pod Security, of fields that are old
    num_objects = sum(1 for one in yaml.safe_load_all(text) if one)
    assert len(answer.stdout.splitlines()) == num_objects


@each_values_file
def test_operator_and_gateway_understand_their_flags(helm: Helm, values: Path) -> None:
    objects = helm.objects(f"--values={values}")
    operator = operator_settings.parse(flags_of(objects, "operator"), {})
    gateway = gateway_settings.parse(flags_of(objects, "gateway"), {})

    assert operator.operator_namespace == operator.gateway_namespace == NAMESPACE
    assert operator.watched_namespaces == gateway.watched_namespaces
    assert gateway.kubernetes
    assert gateway.host == gateway.management_host == "0.0.0.0"


def test_with_a_certificate_gateway_operator_and_test_speak_tls(helm: Helm) -> None:
    objects = helm.objects(f"--values={CHART / 'ci/tls-values.yaml'}")
    gateway = gateway_settings.parse(flags_of(objects, "gateway"), {})
    mounted = next(
        one["spec"]["template"]["spec"]
        for one in objects
        if (one["kind"], one["metadata"]["name"]) == ("Deployment", "quire-gateway")
    )
    secret = next(one["secret"] for one in mounted["volumes"] if one["name"] == "tls")
    places = {one["name"]: one["mountPath"] for one in mounted["containers"][0]["volumeMounts"]}
    test = next(one for one in objects if one["metadata"]["name"] == "quire-test-gateway")

    assert secret["secretName"] == "gateway-tls"
    assert gateway.tls_certificate_file == f"{places['tls']}/tls.crt"
    assert gateway.tls_key_file == f"{places['tls']}/tls.key"
    assert operator_settings.parse(flags_of(objects, "operator"), {}).gateway_tls
    assert labels_of_gateways(objects)[GATEWAY_TLS_LABEL] == "true"
    assert labels_of_gateways(helm.objects())[GATEWAY_TLS_LABEL] == "false"
    assert '"https://' in test["spec"]["containers"][0]["args"][0]


@pytest.mark.parametrize(
    ("values", "ask"),
    [("default", " http://127.0.0.1:8080/"), ("tls", " --insecure https://127.0.0.1:8080/")],
)
def test_its_notes_ask_the_gateway_as_it_speaks(helm: Helm, values: str, ask: str) -> None:
    flags = ("--dry-run=client", f"--values={CHART / f'ci/{values}-values.yaml'}")
    assert ask in helm.call("install", "quire", CHART, *flags).partition("NOTES:")[2]


def test_alerts_link_to_where_the_documentation_is_published(helm: Helm) -> None:
    base = "https://docs.example.com/quire"
    for given in (base, f"{base}/", ""):
        flags = ("--set=prometheusRule.enabled=true", f"--set=prometheusRule.docsURL={given}")
        [rule] = [one for one in helm.objects(*flags) if one["kind"] == "PrometheusRule"]
        alerts = [one for group in rule["spec"]["groups"] for one in group["rules"]]
        assert len(alerts) > 10
        for one in alerts:
            assert (CHART.parents[1] / one["annotations"].get("runbook", "docs")).exists()
            link = one["annotations"].get("runbook_url")
            assert link == (f"{base}/runbooks/{one['alert']}/" if given else None)


def test_images_are_named_by_registry_repository_and_digest_or_tag(helm: Helm) -> None:
    objects = helm.objects(f"--values={CHART / 'ci/private-registry-values.yaml'}")
    images = {
        container["name"]: container["image"]
        for one in objects
        if one["kind"] == "Deployment"
        for container in one["spec"]["template"]["spec"]["containers"]
    }
    mirror = "registry.example:5000/mirror/quire"
    assert images["operator"].startswith(f"{mirror}/quire-operator@sha256:")
    assert images["gateway"] == "other.example/quire/quire-gateway:1.2"
    operator = operator_settings.parse(flags_of(objects, "operator"), {})
    assert operator.engine_image == f"{mirror}/quire-engine:0.1.0"
    assert operator.cpu_engine_image == f"{mirror}/quire-engine-cpu:0.1.0"


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("operator.replica=3", "at '/operator': additional properties 'replica' not allowed"),
        ("gatway.replicas=3", "additional properties 'gatway' not allowed"),
        ("logFormat=xml", "at '/logFormat': value must be one of 'json', 'text'"),
        ("gateway.replicas=two", "at '/gateway/replicas': got string, want integer"),
        ("operator.replicas=99999999999", "at '/operator/replicas': maximum: got 9.9999999999×"),
        ("operator.image.digest=abc", "at '/operator/image/digest': 'abc' does not match pattern"),
        ("namespaces={Team_A}", "at '/namespaces/0': 'Team_A' does not match pattern"),
        ("operator.image.tag=a b", "at '/operator/image/tag': 'a b' does not match pattern"),
        ("gateway.tlsSecretName=A_b", "at '/gateway/tlsSecretName': 'A_b' does not match pattern"),
        ("gateway.tolerations[0].efect=x", "additional properties 'efect' not allowed"),
        ("operator.extraArgs={workers=3}", "'workers=3' does not match pattern '^--'"),
        ("operator.scaleSeconds=null", "there is no value operator.scaleSeconds. Defaults of"),
        ("gatewayAPI=null", "there is no value gatewayAPI.enabled. Defaults of an older chart"),
    ],
)
def test_wrong_values_are_refused_by_name(helm: Helm, flag: str, words: str) -> None:
    ran = helm.run("template", "quire", CHART, f"--set={flag}")
    assert ran.returncode != 0
    assert words in ran.stderr


SCALED = "gateway.autoscaling.enabled=true"


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("operator.replicas=0", "operator.replicas is 0, and nobody acts on services then: set 1"),
        ("gateway.replicas=0", "To stop for a while: kubectl --namespace quire-system scale deplo"),
        (f"{SCALED},gateway.autoscaling.minReplicas=20", "is 20, and maxReplicas 10: raise max"),
        (f"{SCALED},gateway.resources.requests.cpu=null", "set gateway.resources.requests.cpu"),
        (f"{SCALED},gateway.resources=null", "set gateway.resources.requests.cpu"),
        ("gateway.resources.requests.cpu=abc", 'requests.cpu is "abc", which is no quantity: say'),
        ("operator.resources.limits.cpu=1Zi", 'limits.cpu is "1Zi", which is no quantity: say'),
        ("operator.resources.requests.cpu=-1", 'requests.cpu is "-1", which is no quantity: say'),
        ("gateway.resources.limits.memory=256", "memory is 256, which are 256 bytes, and no prog"),
        ("gateway.resources.limits.memory=256m", "is 256m, which are 0.256 bytes, and no progra"),
        ("operator.resources.requests.memory=2Gi", "is 2Gi, and the limit is 512Mi: raise opera"),
        ("gateway.resources.requests.memroy=1Gi", "there is no resource memroy. Kubernetes has"),
        ("gateway.podLabels.app\\.kubernetes\\.io/name=x", "podLabels has app.kubernetes.io/name"),
        ("operator.podLabels.serving\\.quire\\.dev/role=gateway", "has serving.quire.dev/role, by"),
        ("gateway.extraVolumes[0].name=tmp", "a volume tmp, and so has the pod already: give it"),
        (
            "gateway.extraVolumeMounts[0].name=x,gateway.extraVolumeMounts[0].mountPath=/x",
            "mounts x, which is no volume of the pod: add it to gateway.extraVolumes; there",
        ),
        (
            "operator.serviceAccount.name=one,gateway.serviceAccount.name=one",
            "are both one, and the chart is to make both: give them names of their own",
        ),
        ("image.registry=http://x", 'image.registry is "http://x": say HOST, HOST:PORT or HOST/P'),
        ("engine.cpuImage.registry=x/", 'engine.cpuImage.registry is "x/": say HOST, HOST:PORT'),
    ],
)
def test_values_without_sense_are_refused_with_what_to_do(
    helm: Helm, flag: str, words: str
) -> None:
    ran = helm.run("template", "quire", CHART, f"--namespace={NAMESPACE}", f"--set={flag}")
    assert ran.returncode != 0, ran.stdout[-1000:]
    assert words in ran.stderr


@pytest.mark.parametrize(
    "flag",
    [
        "gateway.replicas=0,gateway.autoscaling.enabled=true",
        "gateway.autoscaling.minReplicas=20",  # of no effect
        f"{SCALED},gateway.resources.requests.cpu=null,gateway.resources.limits.cpu=2",
        "gateway.resources=null",
        "gateway.resources.limits.memory=1e9",
        "gateway.resources.limits.memory=1073741824",
        "gateway.resources.requests.cpu=.5",
        "gateway.resources.limits.example\\.com/card=1",
        "image.registry=",
    ],
)
def test_values_that_look_odd_and_are_right_are_taken(helm: Helm, flag: str) -> None:
    assert helm.objects(f"--set={flag}")


@pytest.mark.parametrize(
    ("flags", "is_there"),
    [
        ("gateway.replicas=1", False),
        ("gateway.replicas=2", True),
        (f"{SCALED},gateway.autoscaling.minReplicas=1", True),
        (f"{SCALED},gateway.autoscaling.minReplicas=1,gateway.autoscaling.maxReplicas=1", False),
        ("gateway.podDisruptionBudget.enabled=false", False),
    ],
)
def test_gateways_are_evicted_one_by_one_where_there_may_be_several(
    helm: Helm, flags: str, is_there: bool
) -> None:
    kinds = [
        one["spec"]["maxUnavailable"]
        for one in helm.objects(f"--set={flags}")
        if one["kind"] == "PodDisruptionBudget" and one["metadata"]["name"] == "quire-gateway"
    ]
    assert kinds == ([1] if is_there else [])


def _policies(helm: Helm, *flags: str) -> dict[str, Body]:
    return {
        one["metadata"]["name"].removeprefix("quire-"): one["spec"]
        for one in helm.objects(*flags)
        if one["kind"] == "NetworkPolicy"
    }


@pytest.mark.parametrize("kind", ["ClusterIP", "NodePort", "LoadBalancer"])
def test_a_gateway_with_a_way_in_from_outside_lets_everybody_in(helm: Helm, kind: str) -> None:
    kept = _policies(helm)
    made = _policies(helm, f"--set=gateway.service.type={kind}")
    everybody = {"ports": [{"protocol": "TCP", "port": 8080}]}
    more = [] if kind == "ClusterIP" else [everybody]
    assert made["gateway"]["ingress"] == kept["gateway"]["ingress"] + more
    assert everybody not in kept["gateway"]["ingress"]
    assert made["operator"] == kept["operator"]


def test_further_rules_of_policies_are_added(helm: Helm) -> None:
    place = "networkPolicy.extraIngress[0].from[0].ipBlock.cidr=10.9.0.0/16"
    collector = "networkPolicy.extraEgress[0].ports[0].port=4318"
    kept = _policies(helm)
    made = _policies(helm, f"--set={place},{collector}")
    rule, way = {"from": [{"ipBlock": {"cidr": "10.9.0.0/16"}}]}, {"ports": [{"port": 4318}]}
    assert made["gateway"]["ingress"] == [*kept["gateway"]["ingress"], rule]
    assert made["operator"]["ingress"] == kept["operator"]["ingress"]
    for name, spec in kept.items():
        assert made[name]["egress"] == [*spec["egress"], way]
    none = "networkPolicy.extraIngress=null,networkPolicy.extraEgress=null"
    assert _policies(helm, f"--set={none}") == kept


def test_names_that_look_like_numbers_stay_names(helm_program: Path, tmp_path: Path) -> None:
    helm = Helm(helm_program, tmp_path)
    secrets = "gateway.tlsSecretName=1234,rootSecretName=1e3"
    names = f"{secrets},operator.priorityClassName=0x1,namespaces={{5678}}"
    names += ",nameOverride=true,fullnameOverride=quire"
    where = ("--namespace=1234", "--skip-tests", f"--set-string={names}")
    text = helm.call("template", "1234", CHART, *where)
    objects = [one for one in yaml.safe_load_all(text) if one]
    spaces = [one["metadata"]["namespace"] for one in objects if "namespace" in one["metadata"]]
    gateway, operator = (
        one["spec"]["template"]["spec"] for one in objects if one["kind"] == "Deployment"
    )
    mounted = {one["secret"]["secretName"] for one in gateway["volumes"] if "secret" in one}
    assert set(spaces) == {"1234", "5678"}
    assert mounted == {"1234", "1e3"}
    assert operator["priorityClassName"] == "0x1"
    for one in objects:
        labels = one["metadata"]["labels"]
        assert (labels["app.kubernetes.io/name"], labels["app.kubernetes.io/instance"]) == (
            "true",
            "1234",
        )


@pytest.mark.parametrize("release", ["my.quire", "1quire"])
def test_a_release_whose_services_could_have_no_name_is_refused(helm: Helm, release: str) -> None:
    ran = helm.run("template", release, CHART)
    assert ran.returncode != 0
    assert f"objects would be named {release}-gateway, and a Service's name" in ran.stderr
    assert helm.call("template", release, CHART, "--set=fullnameOverride=quire")


def test_numbers_of_a_values_file_stay_whole(helm: Helm, tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    user = 1_000_650_000
    path.write_text(
        "operator: {tokenEpoch: 202611291430, scaleSeconds: 2592000, replicas: 1000000}\n"
        "gateway: {drainSeconds: 2592000, replicas: 2000000}\n"
        f"podSecurityContext: {{runAsUser: {user}}}\n"
    )
    text = helm.render(f"--values={path}")
    objects = [one for one in yaml.safe_load_all(text) if one]
    gateway, operator = (one["spec"] for one in objects if one["kind"] == "Deployment")
    flags = {*flags_of(objects, "operator"), *flags_of(objects, "gateway")}
    whole = {"--token-epoch=202611291430", "--scale-seconds=2592000", "--drain-seconds=2592000"}
    assert whole <= flags
    assert (operator["replicas"], gateway["replicas"]) == (1_000_000, 2_000_000)
    pods = gateway["template"]["spec"]
    assert pods["terminationGracePeriodSeconds"] == 2_592_020
    assert pods["securityContext"]["runAsUser"] == user
    assert "e+" not in text.split("kind: Deployment", 1)[1]


def test_the_kept_manifest_is_what_helm_renders(helm: Helm) -> None:
    text = INSTALL.read_text()
    assert is_fresh(text, chart_digest(CHART)), "run make manifests"
    kept = [one for one in yaml.safe_load_all(text) if one]
    assert kept[0]["kind"] == "Namespace"
    assert kept[1:] == helm.objects("--skip-tests")


def test_the_api_server_takes_the_kept_manifest(cluster: Cluster) -> None:
    flags = ("--server-side", "--dry-run=server", "--validate=strict")
    answer = cluster.api.run("apply", *flags, f"--filename={INSTALL}")
    assert answer.returncode == 0, answer.stderr
    assert not answer.stderr

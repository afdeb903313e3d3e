"""What the chart's generators make, and what manifests/install.yaml holds: without Helm."""

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from hack.chart.install import NAMESPACE, chart_digest, is_fresh
from hack.chart.schema import schema_text
from hack.chart.values import CHART, read_values
from quire_gateway import rbac as gateway_rbac
from quire_operator import rbac as operator_rbac
from quire_operator.planner.network_paths import system_policies
from quire_operator.resource.crd import crd
from quire_operator.settings import OperatorSettings

Body = dict[str, Any]

ROOT = CHART.parents[1]
INSTALL = ROOT / "manifests" / "install.yaml"
OBJECTS: list[Body] = [one for one in yaml.safe_load_all(INSTALL.read_text()) if one]


def _named(kind: str, name: str) -> Body:
    [found] = [
        one for one in OBJECTS if one["kind"] == kind and one["metadata"]["name"].endswith(name)
    ]
    return found


def test_each_value_has_a_comment_a_default_and_a_path() -> None:
    values = read_values(
        "# one\na: 1\nb:\n  # two,\n  # and more\n  c: {x: y}\nd:\n  e:\n    # f\n    f: []\n"
    )
    assert [(one.name, one.default, one.description) for one in values] == [
        ("a", 1, "one"),
        ("b.c", {"x": "y"}, "two, and more"),
        ("d.e.f", [], "f"),
    ]


def test_a_value_without_a_comment_is_refused() -> None:
    with pytest.raises(ValueError, match=r"b\.d has no comment"):
        read_values("# one\na: 1\nb:\n  # two\n  c: 1\n  d: 2\n")


def test_a_list_without_a_shape_is_refused() -> None:
    values = read_values((CHART / "values.yaml").read_text() + "x:\n  # names\n  names: []\n")
    with pytest.raises(ValueError, match=r"x\.names: hack/chart/schema.py does not say"):
        schema_text(values)


def test_defaults_and_every_ci_file_fit_the_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    for path in (CHART / "values.yaml", *(CHART / "ci").glob("*.yaml")):
        jsonschema.validate(yaml.safe_load(path.read_text()), schema)


def test_every_object_of_the_schema_is_closed_where_values_has_a_section() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    def sections(node: Body) -> list[Body]:
        inner = [one for one in node.get("properties", {}).values() if "description" not in one]
        return [node, *(found for one in inner for found in sections(one))]

    found = sections(schema)
    assert len(found) > 15
    assert all(one["additionalProperties"] is False for one in found)


def test_the_chart_is_of_the_version_that_the_project_is() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == project["version"]


def test_a_changed_chart_or_manifest_is_noticed_without_helm(tmp_path: Path) -> None:
    text, digest = INSTALL.read_text(), chart_digest(CHART)
    assert is_fresh(text, digest)
    assert not is_fresh(text.replace("replicas: 2", "replicas: 3", 1), digest)
    assert not is_fresh("", digest)
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "a.yaml").write_text("a")
    before = chart_digest(tmp_path)
    (tmp_path / "README.md").write_text("no part of it")
    assert chart_digest(tmp_path) == before
    (tmp_path / "templates" / "a.yaml").write_text("b")
    assert chart_digest(tmp_path) != before


def test_rights_are_those_that_are_written_down_and_none_is_a_wildcard() -> None:
    settings = OperatorSettings()
    roles = {
        ("ClusterRole", ":quire-operator"): [*operator_rbac.rules(), *operator_rbac.node_rules()],
        ("Role", "operator-own"): operator_rbac.own_rules(settings.lease, settings.root_secret),
        ("ClusterRole", ":quire-gateway"): gateway_rbac.rules(),
        ("ClusterRole", ":quire-view"): operator_rbac.user_rules()["view"],
        ("ClusterRole", ":quire-edit"): operator_rbac.user_rules()["edit"],
    }
    for (kind, name), rules in roles.items():
        assert _named(kind, name)["rules"] == rules
    granted = [one for one in OBJECTS if one["kind"] in ("Role", "ClusterRole")]
    assert len(granted) == len(roles)
    assert "*" not in json.dumps([one["rules"] for one in granted])


def test_bindings_give_each_account_its_own_role_and_no_other() -> None:
    bindings = [one for one in OBJECTS if one["kind"].endswith("RoleBinding")]
    given = {(one["subjects"][0]["name"], one["roleRef"]["name"]) for one in bindings}
    assert given == {
        ("quire-operator", f"{NAMESPACE}:quire-operator"),
        ("quire-operator", "quire-operator-own"),
        ("quire-gateway", f"{NAMESPACE}:quire-gateway"),
    }
    assert all(one["subjects"][0]["namespace"] == NAMESPACE for one in bindings)


def test_policies_and_kind_are_those_of_the_operator() -> None:
    operator, gateway = system_policies(OperatorSettings(gateway_namespace=NAMESPACE).for_planner())
    assert _named("NetworkPolicy", "operator")["spec"] == operator["spec"]
    assert _named("NetworkPolicy", "gateway")["spec"] == gateway["spec"]
    kind = _named("CustomResourceDefinition", "quire.dev")
    assert kind["spec"] == json.loads(json.dumps(crd()["spec"]))
    assert kind["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


@pytest.mark.parametrize("component", ["operator", "gateway"])
def test_pods_are_restricted_bounded_and_survive_a_drained_node(component: str) -> None:
    deployment = _named("Deployment", component)["spec"]
    pod = deployment["template"]["spec"]
    [container] = pod["containers"]

    assert deployment["replicas"] == 2
    assert _named("PodDisruptionBudget", component)["spec"]["maxUnavailable"] == 1
    assert pod["enableServiceLinks"] is False  # their variables would be taken for settings
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    starting = container["startupProbe"]
    assert starting["periodSeconds"] * starting["failureThreshold"] >= 300
    assert container["livenessProbe"]
    assert container["readinessProbe"]
    labels = deployment["template"]["metadata"]["labels"]
    assert labels["serving.quire.dev/role"] == component
    assert deployment["selector"]["matchLabels"].items() <= labels.items()

"""Every program has a pinned version and says it."""

import re

import pytest

from hack.cluster.catalogue import ENVOY, KUBERNETES, TOOLS, GoTool, Tool, tool_with
from hack.cluster.config import Size
from hack.cluster.sizes import programs_of, roles_of


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_a_tool_is_pinned_to_one_version(tool: Tool) -> None:
    assert re.fullmatch(r"v?\d+\.\d+\.\d+", tool.version)
    assert tool.version in tool.key


@pytest.mark.parametrize(
    "tool", [tool for tool in TOOLS if isinstance(tool, GoTool)], ids=lambda tool: tool.name
)
def test_a_go_tool_has_the_hashes_of_its_modules(tool: GoTool) -> None:
    sums = tool.go_mod.with_name("go.sum").read_text()
    assert f"{tool.module} {tool.version} h1:" in sums
    for package in tool.packages:
        assert package in tool.go_mod.read_text() or tool.go_mod.with_name("main.go").exists()


def test_kubernetes_is_told_its_version_as_semantic_version() -> None:
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        assert f"-X {package}.gitVersion={KUBERNETES.version}" in KUBERNETES.linker_flags
        assert f"-X {package}.gitMajor=1" in KUBERNETES.linker_flags


def test_every_size_is_made_of_programs_that_some_tool_brings() -> None:
    for size in Size:
        assert {tool_with(name) for name in programs_of(size)} <= set(TOOLS)
        assert programs_of(size)[0] == "etcd"
    assert tool_with("envoy") is ENVOY


def test_a_cluster_of_real_nodes_has_three_programs_a_node_besides_the_first() -> None:
    roles = roles_of(Size.NODES, 2)
    assert [role for role in roles if role.startswith("node-2/")] == [
        "node-2/init",
        "node-2/containerd",
        "node-2/kubelet",
        "node-2/kube-proxy",
    ]
    assert "control-plane/kube-scheduler" in roles
    assert "kwok" in roles_of(Size.KWOK, 2)

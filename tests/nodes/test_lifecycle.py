"""Real nodes go without a trace, whatever ran on them and however they end."""

from pathlib import Path

from hack.cluster import cgroups
from hack.cluster.cluster import group_prefix
from hack.cluster.config import Size
from hack.cluster.images import TOOLS
from hack.cluster.temporary import remove_abandoned
from tests.api.servers import wait_until
from tests.cluster.owners import OwnedCluster

_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "containers": [
            {
                "name": "web",
                "image": TOOLS,
                "command": ["/bin/httpd", "-f", "-p", "8000"],
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
                "volumeMounts": [{"name": "memory", "mountPath": "/memory"}],
            }
        ],
        "volumes": [{"name": "memory", "emptyDir": {"medium": "Memory"}}],
    },
}


def test_a_killed_owner_takes_nodes_and_pods_along_and_leaves_nothing(
    cluster_programs: None,
) -> None:
    interfaces = sorted(Path("/sys/class/net").iterdir())
    with OwnedCluster("test-nodes-owned", Size.NODES, 1) as owned:
        api, folder = owned.cluster.api, owned.cluster.folder
        api.apply(_POD)
        api.call("wait", "--for=condition=Ready", "pod/web", "--timeout=110s")
        node = owned.cluster.real.node("node-1").namespaces.pid()
        inside = Path(f"/proc/{node}/ns/pid").readlink()
        assert len(_in_namespace(inside)) > 3
        owned.kill_owner()
        owned.wait_until_programs_are_gone()
        wait_until(lambda: not _in_namespace(inside))

    assert "test-nodes-owned" in remove_abandoned()
    assert not folder.exists()
    assert not list(cgroups.existing(group_prefix("test-nodes-owned")))
    assert str(folder) not in Path("/proc/self/mountinfo").read_text()
    assert sorted(Path("/sys/class/net").iterdir()) == interfaces


def _in_namespace(inside: Path) -> list[str]:
    """Numbers of the processes that see this set of processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/ns/pid"):
        try:
            if path.readlink() == inside:
                found.append(path.parts[2])
        except OSError:
            continue  # it has just ended
    return found

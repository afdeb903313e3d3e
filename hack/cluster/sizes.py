"""Which programs a cluster of each size is made of."""

from hack.cluster.config import Size

_PROGRAMS = {
    Size.API: ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"),
    Size.KWOK: ("kube-scheduler", "kwok"),
    Size.NODES: ("kube-scheduler", "kubelet", "kube-proxy", "envoy", "coredns", "contour"),
}


def programs_of(size: Size) -> tuple[str, ...]:
    """Programs to be built or fetched; etcd, the quickest, comes first."""
    return tuple(dict.fromkeys((*_PROGRAMS[Size.API], *_PROGRAMS[size])))


def roles_of(size: Size, num_nodes: int) -> list[str]:
    """Roles of the processes that a whole cluster has."""
    if size is not Size.NODES:
        return [name for name in programs_of(size) if name != "kubectl"]
    plane = ("init", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
    more = ("door", "coredns", "contour", "envoy", "gpu-plugin")
    roles = [f"control-plane/{name}" for name in (*plane, *more)]
    for index in range(1, num_nodes + 1):
        roles += [
            f"node-{index}/{name}" for name in ("init", "containerd", "kubelet", "kube-proxy")
        ]
    return roles

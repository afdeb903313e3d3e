"""Configuration files of a node's programs."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.cluster.certificates import Authority
from hack.cluster.images import PAUSE
from hack.cluster.kubeconfig import write_kubeconfig
from hack.cluster.network import POD_RANGE, node_address, pod_range

DNS_SERVICE = "10.96.0.10"
_LEASE_SECONDS = 4


@dataclass(frozen=True)
class NodeFiles:
    """The files of one node, in a folder of its own."""

    folder: Path
    name: str
    index: int
    group: str
    """Its control group."""

    @property
    def containerd(self) -> Path:
        """Configuration of containerd."""
        return self.folder / "containerd.toml"

    @property
    def kubelet(self) -> Path:
        """The kubelet's configuration."""
        return self.folder / "kubelet.json"

    @property
    def kube_proxy(self) -> Path:
        """kube-proxy's configuration."""
        return self.folder / "kube-proxy.json"

    @property
    def kubelet_user(self) -> Path:
        """The kubelet's way to the API server."""
        return self.folder / "kubelet.kubeconfig"

    def write(self, authority: Authority, server: str) -> None:
        """Write them all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        cni = self.folder / "cni"
        cni.mkdir(exist_ok=True)
        (self.folder / "resolv.conf").write_text("")
        (cni / "10-quire.conflist").write_text(json.dumps(_cni(self.index)))
        self.containerd.write_text(_containerd(cni))
        user = f"system:node:{self.name}"
        write_kubeconfig(self.kubelet_user, authority, server, user, group="system:nodes")
        self.kubelet.write_text(json.dumps(self._kubelet(authority)))
        proxy_user = self.folder / "kube-proxy.kubeconfig"
        write_kubeconfig(proxy_user, authority, server, "system:kube-proxy")
        self.kube_proxy.write_text(json.dumps(self._kube_proxy(proxy_user)))

    def _kubelet(self, authority: Authority) -> dict[str, Any]:
        serving = authority.issue(
            f"{self.name}-serving", self.name, hosts=(self.name, node_address(self.index))
        )
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(authority.own.certificate)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(serving.certificate),
            "tlsPrivateKeyFile": str(serving.key),
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.group}",
            "failCgroupV1": False,
            # it cannot set the machine's limits and priorities, and does not have to
            "featureGates": {"KubeletInUserNamespace": True},
            "enforceNodeAllocatable": ["pods"],
            "failSwapOn": False,
            # the machine's disk is not the node's to keep free
            "evictionHard": {},
            "imageGCHighThresholdPercent": 100,
            "localStorageCapacityIsolation": True,
            "resolvConf": str(self.folder / "resolv.conf"),
            "clusterDNS": [DNS_SERVICE],
            "clusterDomain": "cluster.local",
            "nodeStatusUpdateFrequency": "2s",
            "nodeLeaseDurationSeconds": _LEASE_SECONDS,
            "registerNode": True,
        }

    def _kube_proxy(self, user: Path) -> dict[str, Any]:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(user)},
            "hostnameOverride": self.name,
            "bindAddress": node_address(self.index),
            "healthzBindAddress": "127.0.0.1:10256",
            "metricsBindAddress": "127.0.0.1:10249",
            "mode": "iptables",
            "clusterCIDR": POD_RANGE,
            "detectLocalMode": "ClusterCIDR",
            "nodePortAddresses": ["primary"],
            # these are the machine's settings, not the node's
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
        }


def _cni(index: int) -> dict[str, Any]:
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": pod_range(index)}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    port_map = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "quire", "plugins": [bridge, port_map]}


def _containerd(cni: Path) -> str:
    sections: Sequence[tuple[str, dict[str, str | bool]]] = (
        ("", {"sandbox_image": PAUSE, "restrict_oom_score_adj": True, "disable_apparmor": True}),
        (".cni", {"bin_dir": "/usr/lib/cni", "conf_dir": str(cni)}),
        (".containerd.runtimes.runc", {"runtime_type": "io.containerd.runc.v2"}),
        (".containerd.runtimes.runc.options", {"SystemdCgroup": False}),
    )
    lines = ["version = 2", 'root = "/var/lib/containerd"', 'state = "/run/containerd"']
    for name, settings in sections:
        lines.append(f"[plugins.'io.containerd.grpc.v1.cri'{name}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    return "\n".join(lines) + "\n"

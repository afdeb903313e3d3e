"""etcd, API server, controllers and scheduler: how each is started."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.cluster.api import ApiClient
from hack.cluster.certificates import Authority
from hack.cluster.config import Ports
from hack.cluster.kubeconfig import write_kubeconfig
from hack.cluster.namespaces import Namespaces
from hack.cluster.processes import Launcher

SERVICE_RANGE = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
AUDIT_POLICY = "audit-policy.json"
"""In a cluster's folder before it is made: which requests its API server is to log."""
AUDIT_LOG = "audit.log"
_LEASE_GRACE_SECONDS = 12
_EVICTION_SECONDS = 5

Command = Sequence[str | Path]


@dataclass(frozen=True)
class ControlPlane:
    """Starts what of the control plane is not running.

    Parameters
    ----------
    address
        Where the API server listens; the other programs stay on the loopback address.
    place
        Namespaces that they run in; None is the machine itself.
    """

    launcher: Launcher
    programs: dict[str, Path]
    folder: Path
    authority: Authority
    ports: Ports
    address: str
    place: Namespaces | None

    @property
    def server(self) -> str:
        """The API server's URL for whoever is where it is."""
        return f"https://{self.address}:{self.ports.api}"

    def start_server(self) -> None:
        """Start etcd and the API server if they are not running; does not wait for them."""
        self._start("etcd", self._etcd())
        self._start("kube-apiserver", self._api_server())

    def start_controllers(self, api: ApiClient, *, with_scheduler: bool) -> None:
        """Wait for the API server, start what is not running, and wait until controllers work.

        Raises
        ------
        ClusterError
            A program ends, or is not ready in time: with the end of its log.
        """
        server = self._roles("etcd", "kube-apiserver")
        self.launcher.wait_for("API server", api.is_ready, server)
        self._start("kube-controller-manager", self._controllers())
        if with_scheduler:
            self._start("kube-scheduler", self._scheduler())
        self.launcher.wait_for(
            "controllers",
            lambda: api.get("/api/v1/namespaces/default/serviceaccounts/default") is not None,
            self._roles("kube-apiserver", "kube-controller-manager"),
        )

    def _start(self, program: str, flags: Command) -> None:
        command = (self.programs[program], *flags)
        if self.place is not None:
            self.place.start(program, command)
        elif not self.launcher.is_running(program):
            self.launcher.start(program, command)

    def _roles(self, *programs: str) -> list[str]:
        return [f"{self.place.name}/{name}" if self.place else name for name in programs]

    def _etcd(self) -> Command:
        """Its data may be lost with the machine: the cluster would be, too."""
        client = f"http://127.0.0.1:{self.ports.etcd}"
        peer = f"http://127.0.0.1:{self.ports.etcd_peer}"
        return (
            f"--data-dir={self.folder / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--log-level=warn",
        )

    def _api_server(self) -> Command:
        hosts = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")
        addresses = dict.fromkeys((self.address, API_SERVICE, "127.0.0.1"))
        serving = self.authority.issue(
            "kube-apiserver", "kube-apiserver", hosts=(*hosts, *addresses)
        )
        kubelets = self.authority.issue(
            "kubelet-client", "kube-apiserver-kubelet-client", group="system:masters"
        )
        accounts = self.authority.service_accounts
        reconciler = "none" if self.address == "127.0.0.1" else "lease"
        policy = self.folder / AUDIT_POLICY
        audit = (f"--audit-policy-file={policy}", f"--audit-log-path={self.folder / AUDIT_LOG}")
        return (
            *(audit if policy.exists() else ()),
            f"--etcd-servers=http://127.0.0.1:{self.ports.etcd}",
            f"--bind-address={'127.0.0.1' if reconciler == 'none' else '0.0.0.0'}",
            f"--advertise-address={self.address}",
            f"--secure-port={self.ports.api}",
            # a loopback address cannot be an endpoint of the Service kubernetes
            f"--endpoint-reconciler-type={reconciler}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            "--allow-privileged=true",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={accounts}",
            f"--service-account-signing-key-file={accounts}",
            f"--client-ca-file={self.authority.own.certificate}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--kubelet-client-certificate={kubelets.certificate}",
            f"--kubelet-client-key={kubelets.key}",
            f"--kubelet-certificate-authority={self.authority.own.certificate}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--default-not-ready-toleration-seconds={_EVICTION_SECONDS}",
            f"--default-unreachable-toleration-seconds={_EVICTION_SECONDS}",
        )

    def _controllers(self) -> Command:
        user = "system:kube-controller-manager"
        return (
            f"--kubeconfig={self._kubeconfig(user)}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.ports.controllers}",
            f"--cert-dir={self.folder / 'controllers'}",
            f"--service-account-private-key-file={self.authority.service_accounts}",
            f"--root-ca-file={self.authority.own.certificate}",
            "--use-service-account-credentials",
            "--leader-elect=false",
            "--allocate-node-cidrs=false",
            "--node-monitor-period=1s",
            f"--node-monitor-grace-period={_LEASE_GRACE_SECONDS}s",
            "--kube-api-qps=100",
            "--kube-api-burst=200",
        )

    def _scheduler(self) -> Command:
        return (
            f"--kubeconfig={self._kubeconfig('system:kube-scheduler')}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.ports.scheduler}",
            f"--cert-dir={self.folder / 'scheduler'}",
            "--leader-elect=false",
            "--kube-api-qps=300",
            "--kube-api-burst=500",
        )

    def _kubeconfig(self, user: str) -> Path:
        path = self.folder / f"{user.replace(':', '-')}.kubeconfig"
        return write_kubeconfig(path, self.authority, self.server, user)

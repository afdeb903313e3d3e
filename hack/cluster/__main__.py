"""Clusters from the command line: `python -m hack.cluster --help`."""

import argparse
import sys
from collections.abc import Sequence

try:
    from hack.cluster.binaries import announce, provide_programs
    from hack.cluster.catalogue import TOOLS
    from hack.cluster.cluster import Cluster
    from hack.cluster.config import DEFAULT_NAME, Size, make_command
    from hack.cluster.errors import ClusterError
    from hack.cluster.quire_images import ENGINE, GATEWAY, OPERATOR, all_archives
    from hack.cluster.sizes import roles_of
except ModuleNotFoundError as missing:
    raise SystemExit(
        f"cluster: error: {missing.name} is not installed in this Python: run make install, which"
        " installs what development needs"
    ) from None

_DEFAULT_NODES = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command; returns the process's exit status."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except ClusterError as error:
        print(f"cluster: error: {error}", file=sys.stderr)
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hack.cluster", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="make a cluster, or start what of it is not running")
    up.add_argument("--nodes", type=_count, default=_DEFAULT_NODES, help="how many (default: 3)")
    up.set_defaults(run=_up)
    down = commands.add_parser("down", help="remove a cluster and all that it left")
    down.set_defaults(run=_down)
    status = commands.add_parser("status", help="say what of a cluster runs")
    status.set_defaults(run=_status)
    images = commands.add_parser("images", help="build quire's images and load them into its nodes")
    images.set_defaults(run=_images)
    build = commands.add_parser("build", help="build the programs that clusters are made of")
    build.set_defaults(run=_build)
    build.add_argument("programs", nargs="*", help="their names (default: all)")
    up.add_argument(
        "--size",
        type=Size,
        choices=list(Size),
        default=Size.NODES,
        help="API server alone, with nodes of kwok, or with real nodes (default: nodes)",
    )
    for command in (up, down, status, images):
        command.add_argument(
            "--name", default=DEFAULT_NAME, help=f"its name (default: {DEFAULT_NAME})"
        )
    return parser


def _count(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError
    return number


def _up(options: argparse.Namespace) -> int:
    cluster = Cluster(options.name)
    cluster.up(options.size, options.nodes)
    announce(f"cluster {cluster.name} is ready; {make_command('down', cluster.name)} removes it")
    announce(f"kubectl is {cluster.api.kubectl}")
    print(f"export KUBECONFIG={cluster.kubeconfig}")
    return 0


def _down(options: argparse.Namespace) -> int:
    cluster = Cluster(options.name)
    existed = cluster.exists
    cluster.down()
    announce(f"cluster {cluster.name} {'is removed' if existed else 'does not exist'}")
    return 0


def _status(options: argparse.Namespace) -> int:
    """Say what runs; the exit status tells whether all does."""
    cluster = Cluster(options.name)
    config = cluster.config
    running = {process.role for process in cluster.launcher.running() if process.is_program}
    roles = roles_of(config.size, config.num_nodes)
    dead = [role for role in roles if role not in running]
    ready = cluster.api.ready_nodes()
    announce(f"cluster {config.name}, size {config.size}: {len(roles) - len(dead)} programs run")
    if config.num_nodes:
        announce(f"nodes: {len(ready)} of {config.num_nodes} Ready")
    if dead:
        up = make_command("up", config.name)
        announce(f"not running: {', '.join(dead)}; {up} starts them again")
    if config.size is Size.NODES:
        announce(f"ingress: http://127.0.0.1:{config.ports.ingress}, by Host header")
    print(f"export KUBECONFIG={cluster.kubeconfig}")
    return 1 if dead or len(ready) < config.num_nodes else 0


def _images(options: argparse.Namespace) -> int:
    """Build the images, and load them by the names that the chart's defaults have."""
    cluster = Cluster(options.name)
    if cluster.config.size is not Size.NODES:
        raise ClusterError(
            f"cluster {cluster.name} is of size {cluster.config.size}: no real nodes"
        )
    for archive, name in zip(all_archives(), (OPERATOR, GATEWAY, ENGINE), strict=True):
        announce(f"{name}: loading it into {len(cluster.real.nodes)} nodes")
        cluster.real.load_image(archive)
    announce("helm install quire charts/quire --namespace quire-system --create-namespace --wait")
    return 0


def _build(options: argparse.Namespace) -> int:
    everything = [name for tool in TOOLS for name in tool.programs]
    if unknown := set(options.programs) - set(everything):
        names = ", ".join(sorted(unknown))
        raise ClusterError(f"there is no {names}: programs are {', '.join(everything)}")
    for name, path in provide_programs(options.programs or everything).items():
        print(f"{name} {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

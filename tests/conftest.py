"""Tiers of tests: which run on this machine, said at the top of every run with the reasons.

    everywhere   unit, engine, api, control_plane, docs: Python alone
    browser      Chromium, or apt-get with root to install Debian's
    cluster      Linux: an API server and controllers, and nodes of which there are only objects
    nodes        Linux with root, and Debian's packages or apt-get: real nodes in namespaces;
                 `make test-nodes`
    gpu          a CUDA device; `make test-gpu`

A test belongs to a tier by its folder under tests/. One whose tier cannot run is skipped with
the tier's reason, never silently. Tests of clusters come last: what clusters are made of is built
meanwhile where it is missing.
"""

import os
import signal
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings

from hack.cluster.config import Size
from hack.cluster.errors import ModulesUnavailableError
from tests.browser.chromium import why_no_chromium
from tests.cluster.programs import CLUSTER_TIERS, Background, has_to_build, why_no_cluster

_TESTS = Path(__file__).parent
_BUILD_SECONDS = 5400  # Kubernetes is compiled, and images, on whatever a busy machine spares
# a busy machine draws examples slowly and takes long over each: neither says anything of the code
settings.register_profile(
    "busy", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell's background job: what tests start would ignore Ctrl-C as well, and its tests send it
    signal.signal(signal.SIGINT, signal.default_int_handler)
_BACKGROUND = pytest.StashKey[Background]()


class Tier(NamedTuple):
    """Folders of tests that need the same of a machine."""

    name: str
    folders: tuple[str, ...]
    obstacle: Callable[[], str | None]
    """Says why this machine cannot run the tier, or None if it can."""
    apart: str = ""
    """Why `make test` leaves it to a target of its own, if it does."""


def _nothing() -> str | None:
    return None


def _no_cuda() -> str | None:
    if not Path("/dev/nvidiactl").exists():
        return "needs an NVIDIA GPU, and /dev/nvidiactl is missing"
    return None


if _no_cuda() is not None:
    # Triton decides when it is imported whether kernels are interpreted, and any test may be the
    # first to import it: transformers does, for one
    os.environ["TRITON_INTERPRET"] = "1"

TIERS = (
    Tier("everywhere", ("unit", "engine", "api", "control_plane", "docs"), _nothing),
    Tier("browser", ("browser",), why_no_chromium),
    Tier("cluster", ("cluster",), lambda: why_no_cluster(Size.KWOK)),
    Tier("nodes", ("nodes",), lambda: why_no_cluster(Size.NODES), "its images take minutes"),
    Tier("gpu", ("gpu",), _no_cuda, "the GPU is to be free"),
)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """One line for each tier."""
    chosen: str = config.option.markexpr
    return [f"tier {tier.name}: {_state(tier, chosen)}" for tier in TIERS]


def _state(tier: Tier, chosen: str) -> str:
    folders = [name for name in tier.folders if any((_TESTS / name).rglob("test_*.py"))]
    if not folders:
        return "has no tests yet"
    reason = tier.obstacle()
    if reason is None and f"not {tier.name}" in chosen.split(" and "):
        return f"could run here, and is left to make test-{tier.name}: {tier.apart}"
    return f"cannot run here: {reason}" if reason else f"runs here ({', '.join(folders)})"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by tier, and skip those of a tier that cannot run."""
    by_folder = {folder: tier for tier in TIERS for folder in tier.folders}
    reasons = {tier.name: tier.obstacle() for tier in TIERS}
    for item in items:
        folder = item.path.relative_to(_TESTS).parts[0]
        if folder not in by_folder:
            raise pytest.UsageError(f"{item.path} is in no tier: move it to {', '.join(by_folder)}")
        tier = by_folder[folder]
        if tier.name != "everywhere":
            item.add_marker(tier.name)
        if reason := reasons[tier.name]:
            item.add_marker(pytest.mark.skip(reason=f"tier {tier.name} {reason}"))
        if folder == "nodes" or (folder in CLUSTER_TIERS and has_to_build(folder)):
            item.add_marker(pytest.mark.timeout(_BUILD_SECONDS))
    items.sort(key=lambda item: item.path.relative_to(_TESTS).parts[0] in CLUSTER_TIERS)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start building what the chosen tests of clusters need and the machine lacks."""
    tiers = {item.path.relative_to(_TESTS).parts[0] for item in session.items if _is_run(item)}
    if session.config.option.collectonly:
        return
    background = session.config.stash[_BACKGROUND] = Background(tiers)
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    if background.missing and reporter is not None:
        names = ", ".join(f"{tool.name} {tool.version}" for tool in background.missing)
        reporter.write_line(f"building for tests of clusters, while others run: {names}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leave no build behind: it goes on where it was when the next one starts."""
    if (background := session.config.stash.get(_BACKGROUND, None)) is not None:
        background.stop()


@pytest.fixture(scope="session")
def cluster_programs(pytestconfig: pytest.Config) -> None:
    """What clusters are made of, and the packages that real nodes need, are there."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        try:
            pytestconfig.stash[_BACKGROUND].finish()
        except ModulesUnavailableError as error:
            pytest.skip(f"tier cluster: {error}")


def _is_run(item: pytest.Item) -> bool:
    return item.get_closest_marker("skip") is None

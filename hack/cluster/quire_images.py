"""quire's own images, built from images/*/Dockerfile as a user would, without Docker.

They have the names that the chart has by default: what is installed without a word about images
finds them on nodes that they were loaded into.
"""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import yaml

from hack.cluster.base_image import default_builder
from hack.cluster.catalogue import PROJECT
from hack.cluster.requirements import IMAGE_PROGRAMS, install, missing_packages

_CHART = PROJECT / "charts" / "quire"


def name_of(role: str) -> str:
    """Name of a role's image, as the chart has it: operator, gateway or engine."""
    values = yaml.safe_load((_CHART / "values.yaml").read_text())
    tag = yaml.safe_load((_CHART / "Chart.yaml").read_text())["appVersion"]
    return f"{values['image']['registry']}/{values[role]['image']['repository']}:{tag}"


ENGINE, OPERATOR, GATEWAY = map(name_of, ("engine", "operator", "gateway"))
_FILES = ("pyproject.toml", "uv.lock", "README.md", "LICENSE", "hack/compile_gateway.py")
_FOLDERS = ("engine", "gateway", "kernels", "local", "operator")
NO_TORCH = {"EXPORT": "--prune torch --prune triton"}
"""Build arguments of an engine that can only simulate."""


def engine_archive() -> Path:
    """The engine's image, in an archive as `docker save` writes it.

    Without torch: for simulated engines, and for those whose pods bring torch from a volume.

    Raises
    ------
    ClusterError
        It cannot be built: with the last lines of what was said.
    """
    return build(ENGINE, "engine", NO_TORCH)


def operator_archive() -> Path:
    """The operator's image.

    Raises
    ------
    ClusterError
        It cannot be built: with the last lines of what was said.
    """
    return build(OPERATOR, "operator", {})


def gateway_archive() -> Path:
    """The gateway's image, as it is published: compiled, which takes minutes when it changed.

    Raises
    ------
    ClusterError
        It cannot be built: with the last lines of what was said.
    """
    return build(GATEWAY, "gateway", {}, what_takes_long="compiling the gateway (some minutes)")


def all_archives() -> list[Path]:
    """All three images.

    Raises
    ------
    ClusterError
        One cannot be built: with the last lines of what was said.
    """
    return [operator_archive(), gateway_archive(), engine_archive()]


def build(
    name: str,
    role: str,
    arguments: Mapping[str, str],
    *,
    project: Path = PROJECT,
    what_takes_long: str = "",
) -> Path:
    """Build a role's image, or take the one that was built from the same files.

    Parameters
    ----------
    arguments
        Of the Dockerfile, besides its base.
    project
        The repository's files, of this commit or another.
    what_takes_long
        Said when it is built: in words, with how long.

    Raises
    ------
    ClusterError
        It cannot be built: with the last lines of what was said.
    """
    install(missing_packages(IMAGE_PROGRAMS))
    # what .dockerignore lets through, and no more: all of it counts for whether to build anew
    with tempfile.TemporaryDirectory() as folder:
        for file in _FILES:
            (Path(folder) / file).parent.mkdir(exist_ok=True)
            shutil.copy(project / file, Path(folder) / file)
        for tree in _FOLDERS:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(project / tree, Path(folder) / tree, ignore=ignored)
        dockerfile = project / "images" / role / "Dockerfile"
        builder = default_builder()
        return builder.build(name, Path(folder), dockerfile, arguments, what_takes_long)

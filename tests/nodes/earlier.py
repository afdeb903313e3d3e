"""An earlier quire, as somebody installed it: the chart and the images of a commit."""

import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from hack.cluster.catalogue import PROJECT
from hack.cluster.quire_images import ENGINE, GATEWAY, NO_TORCH, OPERATOR, build

COMMIT = "05153fbfa84d08cc7d6c2a3a19bfc04e65fcac6d"
"""Its kind has other rules, its Deployments of engines have no seals, and it scales nothing."""
TAG = "earlier"


def why_there_is_none() -> str | None:
    """Why this clone cannot tell what the commit had, or None."""
    words = f"an upgrade needs the commit {COMMIT[:7]}, which this clone lacks"
    if not (PROJECT / ".git").exists():
        return f"{words}: it is no clone of git"
    there = _git("cat-file", "-e", f"{COMMIT}^{{commit}}")
    return None if there.returncode == 0 else f"{words}: git fetch --unshallow brings it"


@dataclass(frozen=True)
class Earlier:
    """That commit's files, in a folder that was empty."""

    folder: Path

    def unpack(self) -> None:
        """Put them there."""
        archive = self.folder / "files.tar"
        made = _git("archive", f"--output={archive}", COMMIT)
        assert made.returncode == 0, made.stderr
        with tarfile.open(archive) as files:
            files.extractall(self.folder, filter="data")
        archive.unlink()

    @property
    def chart(self) -> Path:
        """To be installed with `values`."""
        return self.folder / "charts" / "quire"

    @property
    def values(self) -> list[str]:
        """Flags for Helm: images by a tag of their own."""
        return [f"--set={role}.image.tag={TAG}" for role in ("operator", "gateway", "engine")]

    def archives(self) -> list[Path]:
        """Its images, built as those of today are."""
        plain, without_torch = {"COMPILE": "no"}, NO_TORCH
        return [
            build(_tagged(OPERATOR), "operator", {}, project=self.folder),
            build(_tagged(GATEWAY), "gateway", plain, project=self.folder),
            build(_tagged(ENGINE), "engine", without_torch, project=self.folder),
        ]


def _tagged(image: str) -> str:
    return f"{image.rpartition(':')[0]}:{TAG}"


def _git(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["git", *arguments], cwd=PROJECT, capture_output=True, text=True, check=False
    )

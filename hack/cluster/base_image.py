"""Images built from Dockerfiles, without Docker and without a registry.

The base is Debian with Python, by debootstrap from the machine's own mirror; Dockerfiles take it as
build argument BASE. Both are made once for what they are made of.
"""

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.cluster.binaries import announce
from hack.cluster.catalogue import machine_architecture
from hack.cluster.errors import ClusterError
from hack.cluster.folders import cluster_folder, only_one
from hack.cluster.processes import require
from hack.cluster.requirements import IMAGE_PROGRAMS, missing_packages

SUITE = "bookworm"
PYTHON_VERSION = (3, 11)
"""Of that Debian, and so of all images."""
PACKAGES = ("python3", "python3-venv", "ca-certificates")
_NUM_KEPT = 2
_NUM_LEFTOVERS = 16
"""Images without a name that are kept: a build of all three leaves six."""
_CERTIFICATES = Path("/etc/ssl/certs")


@dataclass(frozen=True)
class Builder:
    """Builds images into archives in the cache."""

    folder: Path
    say: Callable[[str], None] = announce

    @property
    def base_name(self) -> str:
        """Name of the base image; another list of packages has another one."""
        content = " ".join((SUITE, *PACKAGES, machine_architecture()))
        return f"localhost/base:{hashlib.sha256(content.encode()).hexdigest()[:12]}"

    def build(
        self,
        name: str,
        context: Path,
        dockerfile: Path,
        arguments: Mapping[str, str] | None = None,
        what_takes_long: str = "",
    ) -> Path:
        """Build an image, or take the one that was built from the same files.

        Parameters
        ----------
        context
            Folder that the Dockerfile copies from; all of it counts.
        arguments
            Build arguments, besides BASE.
        what_takes_long
            Said when it is built: in words, with how long.

        Returns
        -------
        Path
            An archive as `docker save` writes it.

        Raises
        ------
        ClusterError
            A program is missing, or the Dockerfile fails: with its last lines.
        """
        if lacking := missing_packages(IMAGE_PROGRAMS):
            raise ClusterError(
                f"images need programs. Debian and Ubuntu: apt-get install {' '.join(lacking)}"
            )
        given = [f"--build-arg={key}={value}" for key, value in (arguments or {}).items()]
        digest = _digest(context, dockerfile, f"{name} {self.base_name} {given}")
        stem = name.rpartition("/")[2].replace(":", "-")
        archive = self.folder / f"{stem}-{digest}.tar"
        with only_one(self.folder / "images.lock"):
            if archive.exists():
                return archive
            self._provide_base()
            self.say(f"{name}: building the image{what_takes_long and f', {what_takes_long}'}")
            mount = f"{_CERTIFICATES}:{_CERTIFICATES}:ro"
            self._buildah(
                "build",
                "--layers",  # of which those before a changed file are taken as they are
                "--isolation=chroot",
                "--network=host",
                f"--volume={mount}",
                f"--build-arg=BASE={self.base_name}",
                *given,
                f"--file={dockerfile}",
                f"--tag={name}",
                str(context),
            )
            partial = archive.with_suffix(".partial")
            partial.unlink(missing_ok=True)
            self._buildah("push", name, f"docker-archive:{partial}:{name}")
            partial.rename(archive)
            remove_older(self.folder, stem)
            self._remove_leftovers()
        return archive

    def _provide_base(self) -> None:
        if self._has(self.base_name):
            return
        self.say(f"{self.base_name}: installing Debian, once for this machine (about 80 s)")
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            root = Path(folder) / "root"
            included = f"--include={','.join(PACKAGES)}"
            _run([require("debootstrap"), "--variant=minbase", included, SUITE, root])
            shutil.rmtree(root / "var/cache/apt", ignore_errors=True)
            shutil.rmtree(root / "var/lib/apt/lists", ignore_errors=True)
            dockerfile = Path(folder) / "Dockerfile"
            dockerfile.write_text('FROM scratch\nADD . /\nCMD ["/bin/sh"]\n')
            self._buildah(
                "build", "--isolation=chroot", f"--file={dockerfile}", "-t", self.base_name, root
            )

    def _remove_leftovers(self) -> None:
        listed = subprocess.run(
            self._command("images", "--filter=dangling=true", "--json"),
            capture_output=True,
            text=True,
            check=False,
        )
        if listed.returncode == 0 and (old := leftovers(listed.stdout)):
            # those that something still needs stay, with status 1
            subprocess.run(self._command("rmi", *old), capture_output=True, check=False)

    def _has(self, name: str) -> bool:
        ran = subprocess.run(self._command("inspect", "--type=image", name), capture_output=True)
        return ran.returncode == 0

    def _buildah(self, *arguments: str | Path) -> None:
        _run(self._command(*arguments))

    def _command(self, *arguments: str | Path) -> list[str | Path]:
        """Buildah with its images in the cache, and not among the machine's own."""
        storage = self.folder / "buildah"
        places = (f"--root={storage / 'root'}", f"--runroot={storage / 'run'}")
        return [require("buildah"), *places, *arguments]


def default_builder() -> Builder:
    """The one whose images are in the cache."""
    return Builder(cluster_folder("images"))


def remove_older(folder: Path, stem: str) -> None:
    """Remove an image's archives but the newest: half a gigabyte for each change of the source.

    Not the one before it: another process may be about to load that.
    """
    archives = sorted(folder.glob(f"{stem}-*.tar"), key=lambda path: path.stat().st_mtime_ns)
    for old in archives[:-_NUM_KEPT]:
        old.unlink(missing_ok=True)


def leftovers(listed: str) -> list[str]:
    """Images without a name that are too old to be worth their gigabytes, of Buildah's list.

    They are stages of builds, of whose layers the next ones are made, and what had a name before.
    """
    found: list[dict[str, Any]] = json.loads(listed) or []
    by_age = sorted(found, key=lambda one: one["created"])
    return [one["id"] for one in by_age[:-_NUM_LEFTOVERS]]


def _digest(context: Path, dockerfile: Path, name: str) -> str:
    """Hash of all that an image is built from."""
    digest = hashlib.sha256(name.encode() + b"\0" + dockerfile.read_bytes())
    for path in sorted(path for path in context.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(context)}\0{path.stat().st_mode}\0".encode())
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _run(command: Sequence[str | Path]) -> None:
    # what they mount (/proc, layers) goes with them, even if they are killed: nothing of it may be
    # there when their folders are removed
    apart = ("--mount", "--propagation=private", "--pid", "--fork", "--kill-child", "--mount-proc")
    ran = subprocess.run(
        [require("unshare"), *apart, "--", *command], capture_output=True, text=True, check=False
    )
    if ran.returncode != 0:
        words = (ran.stdout + ran.stderr).strip()[-2000:]
        raise ClusterError(f"{Path(command[0]).name} failed: {words}")

"""Container images: made without a builder where a file or two is all there is.

Nodes need an image for the first process of each pod, and tests one with a shell and a web server;
busybox has both in 2 MB.
"""

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hack.cluster.catalogue import machine_architecture
from hack.cluster.folders import cluster_folder
from hack.cluster.native_build import build_init
from hack.cluster.processes import require

PAUSE = "localhost/pause:1"
TOOLS = "localhost/tools:1"
"""A shell and busybox's programs: httpd, wget, nslookup and more."""


def basic_images() -> list[Path]:
    """Archives of the images that every node has."""
    init = build_init().read_bytes()
    busybox = Path(require("busybox"))
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    programs = dict.fromkeys((f"bin/{name}" for name in listed.stdout.split()), "busybox")
    tools: dict[str, bytes | str] = {**programs, "bin/busybox": busybox.read_bytes()}
    return [
        write_image(PAUSE, {"init": init}, ["/init"]),
        write_image(TOOLS, tools, ["/bin/sh"]),
    ]


def write_image(name: str, files: Mapping[str, bytes | str], entrypoint: Sequence[str]) -> Path:
    """Write an archive as `docker save` does, of one layer with these executable files.

    Parameters
    ----------
    files
        Content by path; a string is where a symbolic link leads.

    Returns
    -------
    Path
        In the cache, named by the content: written once.
    """
    layer = _tar({"tmp/": None, **files})
    layer_digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps(
        {
            "architecture": machine_architecture(),
            "os": "linux",
            "config": {"Entrypoint": list(entrypoint), "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest: list[dict[str, Any]] = [
        {"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}
    ]
    path = (
        cluster_folder("images") / f"{name.split('/')[-1].replace(':', '-')}-{config_name[:12]}.tar"
    )
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        content = {
            "manifest.json": json.dumps(manifest).encode(),
            config_name: config,
            "layer.tar": layer,
        }
        partial.write_bytes(_tar(content))
        partial.rename(path)
    return path


def _tar(files: Mapping[str, bytes | str | None]) -> bytes:
    """An archive of files, of links, and of folders where there is no content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name.rstrip("/"))
            entry.mode = 0o755
            if content is None:
                entry.type = tarfile.DIRTYPE
                entry.mode = 0o1777
            elif isinstance(content, str):
                entry.type = tarfile.SYMTYPE
                entry.linkname = content
            else:
                entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content) if isinstance(content, bytes) else None)
    return buffer.getvalue()

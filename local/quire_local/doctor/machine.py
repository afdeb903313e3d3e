"""What `quire serve` and `quire up` need of this machine."""

import errno
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata, util
from pathlib import Path

from quire_engine.errors import QuireError
from quire_engine.sources.cache import cache_folder
from quire_local.doctor.finding import Finding, Findings, fail, ok, warn

_OLDEST_PYTHON = (3, 11)
_PORTS = {8000: "the API", 8001: "the live page of quire up"}
_FEW_BYTES = 5 << 30
_MODULES = ("torch", "fastapi", "uvicorn", "tokenizers", "safetensors")
_CPU_FLAGS = ("avx2", "fma", "f16c")
"""Without these the engine's own kernels for CPUs are not used."""
_SECONDS = 20.0


def check_machine(environment: Mapping[str, str] = os.environ) -> Findings:
    """All of it; nothing is loaded that takes seconds."""
    yield check_python(sys.version_info[:2])
    yield _packages()
    yield check_processor(_processor())
    yield _gpu()
    for port, purpose in _PORTS.items():
        yield check_port(port, purpose)
    yield from check_cache(environment)


def check_python(version: tuple[int, ...]) -> Finding:
    """Whether this Python is new enough."""
    words = f"Python {version[0]}.{version[1]} on {platform.system()} {platform.machine()}"
    if version < _OLDEST_PYTHON:
        return fail(
            "python", f"{words} is too old", "install Python 3.11 or newer, then: make install"
        )
    return ok("python", words)


def _packages() -> Finding:
    missing = [name for name in _MODULES if util.find_spec(name) is None]
    if missing:
        words = f"{', '.join(missing)} not installed: no engine can run here, quire top can"
        return warn("packages", words, "make install")
    return ok("packages", f"torch {metadata.version('torch')}")


def _processor() -> set[str]:
    """Flags of the processor, as Linux tells them; none elsewhere."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return set(value.split())
    return set()


def check_processor(flags: set[str]) -> Finding:
    """Whether models run on this CPU as fast as they can."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    is_x86 = platform.machine() in ("x86_64", "AMD64")
    missing = [flag for flag in _CPU_FLAGS if flag not in flags]
    if is_x86 and missing:
        words = f"{count} processors without {', '.join(missing)}: models on the CPU use PyTorch"
        return warn("processor", f"{words}, several times slower", "use a CPU with AVX2, or a GPU")
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        words = f"{count} processors, and no C++ compiler: models on the CPU use PyTorch, slower"
        return warn("processor", words, "apt-get install g++")
    kind = "AVX-512" if "avx512f" in flags else "AVX2" if is_x86 else platform.machine()
    return ok("processor", f"{count} processors, {kind}; C++ compiler {compiler}")


def _gpu() -> Finding:
    program = shutil.which("nvidia-smi")
    if program is None:
        if Path("/dev/nvidiactl").exists():
            return warn("gpu", "there is a GPU, and no nvidia-smi", "install NVIDIA's driver")
        return ok("gpu", "no NVIDIA GPU: models run on the CPU, or simulated")
    query = ["--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        ran = subprocess.run(  # noqa: S603 - a fixed question to a program of the machine's
            [program, *query], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return fail("gpu", f"nvidia-smi does not answer: {error}", "nvidia-smi")
    if ran.returncode != 0:
        words = (ran.stdout + ran.stderr).strip().partition("\n")[0]
        return fail("gpu", f"the driver does not work: {words}", "modprobe nvidia; nvidia-smi")
    return ok("gpu", "; ".join(ran.stdout.strip().splitlines()))


def check_port(port: int, purpose: str) -> Finding:
    """Whether a port is free."""
    check = f"port {port}"
    try:
        with socket.create_server(("127.0.0.1", port)):
            return ok(check, f"free for {purpose}")
    except OSError as error:
        flag = "--port" if port == min(_PORTS) else "--page-port"
        why = os.strerror(error.errno or 0)
        if error.errno == errno.EADDRINUSE:
            why = "a program listens there already, perhaps a quire up of yours"
        words = f"cannot be had for {purpose}: {why}"
        return warn(check, words, f"quire up -f FILE {flag} 0   # a free one; ss -ltnp says whose")


def check_cache(environment: Mapping[str, str]) -> Findings:
    """Whether models can be kept."""
    try:
        folder = cache_folder(environment)
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".doctor-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except (OSError, QuireError) as error:
        fix = "export QUIRE_CACHE=/a/folder/of/yours"
        yield fail("cache", f"models cannot be kept: {error}", fix)
        return
    free = shutil.disk_usage(folder).free
    words = f"{folder} has {free / 2**30:.0f} GiB left"
    if free < _FEW_BYTES:
        yield warn("cache", words, f"du -sh {folder}/*; or QUIRE_CACHE with another folder")
    else:
        yield ok("cache", words)

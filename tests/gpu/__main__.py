"""`python -m tests.gpu [FLAG ...]`: all tests of this folder, several files at a time.

Most of a file's time is the compiler's, on one core. Each file is a run of pytest of its own, with
the flags given; what the runs have to say is printed as each one ends. The last ones measure the
device's memory and have it for themselves.
"""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

FOLDER = Path(__file__).parent
ALONE = {"test_capacity.py"}
PARTS = {
    "test_attention.py": (
        "test_shapes and (heads0 or heads1 or heads2)",
        "test_shapes and (heads3 or heads4 or heads5)",
        "test_shapes and not (heads0 or heads1 or heads2 or heads3 or heads4 or heads5)",
        "not test_shapes",
    ),
    "test_executor.py": ("smollm2", "qwen3", "not smollm2 and not qwen3"),
}
"""Files that take longer than all others, and by which tests they are cut: each is in one part."""
MAX_RUNS = 12
"""At a time; each takes a core and some 2 GiB of the device."""
GIB_PER_RUN = 8
"""Of the device's memory."""


def parts_of(file: Path) -> list[list[str]]:
    """The flags of each run that a file is cut into."""
    return [["-k", tests] for tests in PARTS[file.name]] if file.name in PARTS else [[]]


def run(file: Path, flags: list[str]) -> tuple[Path, float, subprocess.CompletedProcess[str]]:
    """Run one file's tests."""
    begin = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-m", "gpu", str(file), *flags]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return file, time.monotonic() - begin, done


def report(file: Path, seconds: float, done: subprocess.CompletedProcess[str]) -> bool:
    """Print what a run said; whether it passed."""
    print(f"== {file.name}, {seconds:.0f} s\n{done.stdout.strip()}", flush=True)
    return done.returncode == 0


def num_runs() -> int:
    """How many files may run at a time."""
    import torch

    _, total = torch.cuda.mem_get_info()
    return max(1, min(MAX_RUNS, (os.cpu_count() or 2) * 3 // 4, total // (GIB_PER_RUN << 30)))


def main(flags: list[str]) -> int:
    """Run all files; returns 1 if one failed."""
    files = sorted(FOLDER.glob("test_*.py"), key=lambda file: -file.stat().st_size)
    together = [file for file in files if file.name not in ALONE]
    with ThreadPoolExecutor(num_runs()) as pool:
        runs = [
            pool.submit(run, file, [*part, *flags]) for file in together for part in parts_of(file)
        ]
        passed = [report(*each.result()) for each in as_completed(runs)]
    passed += [report(*run(file, flags)) for file in files if file.name in ALONE]
    print(f"{sum(passed)} of {len(passed)} runs passed", flush=True)
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

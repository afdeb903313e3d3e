"""Refuses to test GPU code where there is no GPU: `python -m hack.gpu`.

With `--results` it prints where the figures of this machine's card belong.
"""

import sys

RESULTS = "benchmarks/gpu/results"


def results_folder(card: str) -> str:
    """Return the folder of a card's figures: h100 for NVIDIA H100 80GB HBM3."""
    words = card.removeprefix("NVIDIA ").removeprefix("GeForce ").lower().split()
    return f"{RESULTS}/{words[0]}"


def reason_without_gpu() -> str | None:
    """Why GPU tests cannot run here, or None if they can."""
    import torch

    if torch.cuda.is_available():
        return None
    built_for = torch.version.cuda
    if built_for is None:
        return "this build of PyTorch has no CUDA: install the one that the lock file names"
    return f"PyTorch (CUDA {built_for}) finds no device: needs an NVIDIA GPU and its driver"


def main() -> int:
    """Say why GPU code cannot run here, as an exit status of 1; silent where it can."""
    reason = reason_without_gpu()
    if reason is None:
        if "--results" in sys.argv[1:]:
            import torch

            print(results_folder(torch.cuda.get_device_name()))
        return 0
    print(f"no GPU code was run: {reason}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())

"""Refuses to test GPU code where there is no GPU: `python -m hack.gpu`."""

import sys


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
    """Say why GPU tests cannot run here, as an exit status of 1; silent where they can."""
    reason = reason_without_gpu()
    if reason is None:
        return 0
    print(f"make test-gpu: no test was run: {reason}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())

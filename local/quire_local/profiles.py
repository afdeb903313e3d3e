"""`quire profiles`: the GPUs that can be simulated, and the models on them."""

from collections.abc import Sequence

from quire_engine.profiles.gpus import GPUS
from quire_engine.profiles.shapes import SHAPES
from quire_engine.profiles.shipped import find_shipped
from quire_local.parser import Parser


def main(argv: Sequence[str]) -> int:
    """Print what --simulate and --model-shape accept, with the sizes that matter."""
    Parser(prog="quire profiles", description=__doc__).parse_args(argv)
    _print_table(
        ["--simulate", "memory GiB", "TB/s", "TFLOP/s", "$/hour", "nvidia.com/gpu.product"],
        [
            [
                gpu.name,
                f"{gpu.memory_bytes / 2**30:.0f}",
                f"{gpu.bandwidth_bytes_per_second / 1e12:.2f}",
                f"{gpu.flops_per_second / 1e12:.0f}",
                f"{gpu.dollars_per_hour:.2f}",
                ", ".join(gpu.products),
            ]
            for gpu in GPUS.values()
        ],
    )
    print()
    _print_table(
        ["--model-shape", "weights GB", "KV KiB/token", "max length", "measured on"],
        [
            [
                shape.name,
                f"{shape.weight_bytes() / 1e9:.1f}",
                f"{shape.kv_bytes_per_token() / 2**10:.1f}",
                str(shape.max_model_len),
                ", ".join(gpu for gpu in GPUS if find_shipped(gpu, shape)) or "-",
            ]
            for shape in SHAPES.values()
        ],
    )
    return 0


def _print_table(heading: list[str], rows: list[list[str]]) -> None:
    """Print columns as wide as their widest cell: names to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(heading, *rows, strict=True)]
    for first, *numbers, last in [heading, *rows]:
        cells = [cell.rjust(width) for cell, width in zip(numbers, widths[1:-1], strict=True)]
        print("  ".join([first.ljust(widths[0]), *cells, last]))

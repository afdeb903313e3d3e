"""`python -m benchmarks.gpu [PIECE ...]`: all that is measured on a GPU, in pieces of minutes.

Each piece is a process of its own that writes JSON into the folder of results, with the card, its
clocks and its peaks, and leaves what other pieces wrote there. One that fails or takes longer than
ten minutes is told of, and the others run. Weights are random, but for `parity`: that needs the
files of a small model, the ones `quire serve` takes without being told, or `--model`. The servers'
models lie in a temporary folder: 16 GB of disk.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from quire_engine.errors import QuireError

SHAPES = ("qwen3-0.6b", "llama3-8b")
PIECE_SECONDS = 600
SERVER_SECONDS = 180

Commands = list[list[str]]


class Bench:
    """What pieces share: the results' folder, a model's file, folders of random weights.

    Parameters
    ----------
    model
        A GGUF file; None: fetched when a piece wants it.
    """

    def __init__(self, results: Path, scratch: Path, model: Path | None) -> None:
        self._results = results
        self._scratch = scratch
        self._model = model

    def pieces(self) -> dict[str, Callable[[], Commands]]:
        """Each piece by its name: the programs it runs, one after the other."""
        found: dict[str, Callable[[], Commands]] = {
            "attention": lambda: [self._module("attention", "attention")],
            "operations": lambda: [self._module("operations", "operations")],
            "parity": self._parity,
        }
        for shape in SHAPES:
            for name in ("engine", "starts", "calibration"):
                module = self._module(name, name, "--shape", shape)
                found[f"{name}/{shape}"] = lambda module=module: [module]  # type: ignore[misc]
            found[f"server/{shape}"] = lambda shape=shape: self._server(shape)  # type: ignore[misc]
        return found

    def _module(self, name: str, file: str, *arguments: str) -> list[str]:
        target = ["--json", str(self._results / f"{file}.json")]
        return ["-m", f"benchmarks.gpu.{name}", *arguments, *target]

    def _parity(self) -> Commands:
        """The CPU's answers are computed here, too."""
        model, reference = str(self.model()), str(self._scratch / "cpu.json")
        return [
            ["-m", "benchmarks.gpu.parity", "reference", model, reference],
            self._module("parity", "parity", "check", model, reference),
            self._module("loading", "loading", model),
        ]

    def _server(self, shape: str) -> Commands:
        """A folder with the shape's sizes, loaded twice, and a server of it under load."""
        folder, model = str(self._scratch / shape), str(self.model())
        return [
            ["-m", "benchmarks.gpu.dummy_folder", shape, model, folder],
            self._module("loading", "loading", folder),
            self._module("server", f"server-{shape}", folder, "--seconds", str(SERVER_SECONDS)),
        ]

    def model(self) -> Path:
        """The small model's file."""
        if self._model is None:
            from quire_engine.config import ModelConfig
            from quire_engine.sources import resolve

            self._model = resolve(ModelConfig().source).path
        return self._model


def run(name: str, piece: Callable[[], Commands]) -> bool:
    """Run a piece's programs; whether all ended well in its time."""
    begin = time.monotonic()
    print(f"== {name}", flush=True)
    try:
        for command in piece():
            left = PIECE_SECONDS - (time.monotonic() - begin)
            subprocess.run([sys.executable, *command], check=True, timeout=max(left, 1))
    except (QuireError, subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"== {name} failed: {error}", flush=True)
        return False
    print(f"== {name}, {time.monotonic() - begin:.0f} s", flush=True)
    return True


def main() -> int:
    """Run the pieces named, or all; returns 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("pieces", nargs="*", metavar="PIECE")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--model", type=Path, help="a GGUF file, in place of the one fetched")
    arguments = parser.parse_args()
    arguments.results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        pieces = Bench(arguments.results, Path(scratch), arguments.model).pieces()
        wanted = arguments.pieces or [*pieces]
        if unknown := [name for name in wanted if name not in pieces]:
            parser.error(f"no such piece: {', '.join(unknown)}; there are {', '.join(pieces)}")
        have_ended = [run(name, pieces[name]) for name in wanted]
    return 0 if all(have_ended) else 1


if __name__ == "__main__":
    sys.exit(main())

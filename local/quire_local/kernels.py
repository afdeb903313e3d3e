"""`quire kernels MODEL --arch ARCH --output FOLDER`: compile a model's GPU kernels ahead of time.

It needs no GPU. An engine that has the folder in `QUIRE_KERNELS` starts without compiling.
"""

import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from quire_engine.__main__ import report_errors
from quire_engine.config import EngineConfig
from quire_engine.config.flags import FlagParser, add_setting_flags, config_from
from quire_engine.errors import ConfigError

if TYPE_CHECKING:
    from quire_engine.models.config import ModelSpec

_DESCRIPTION = "Compile the GPU kernels of a model for an architecture, into one file; no GPU."
_NORM = "model.layers.0.self_attn.q_norm.weight"
_NO_NAME = re.compile(r"[^\w.+-]+")
"""What of a model's name can be in no file's: served names are often org/model."""


class _Model(NamedTuple):
    """What is compiled for."""

    name: str
    spec: "ModelSpec"
    has_head_norms: bool


def main(argv: Sequence[str]) -> int:
    """Compile and write; the exit status is returned."""
    return report_errors(lambda: _compile(argv))


def _compile(argv: Sequence[str]) -> int:
    parser = _parser()
    parsed = parser.parse_known(argv)
    if parsed.output is None or not parsed.arch:
        parser.error("the following arguments are required: --arch, --output")
    folder = Path(parsed.output).expanduser()
    config = config_from(parsed, os.environ)
    _refuse_unknown(parsed.arch)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        model = _find(config, parsed.shape)
        for arch in parsed.arch:
            _write(model, config, arch, folder)
    except OSError as error:
        raise ConfigError(f"cannot write into {folder}: {error.strerror or error}") from error
    print(f"\nexport QUIRE_KERNELS={folder.absolute()}")
    return 0


def file_name(arch: str, model: str) -> str:
    """Name of a model's file, whatever the model is called."""
    from quire_kernels.compiled.packs import SUFFIX

    return f"{arch}-{_NO_NAME.sub('-', model)}{SUFFIX}"


def _refuse_unknown(archs: Sequence[str]) -> None:
    """Refuse an architecture before others are compiled for."""
    from quire_kernels.compiled.absent import devices_of
    from quire_kernels.errors import UnsupportedError

    try:
        for arch in archs:
            devices_of(arch)
    except UnsupportedError as error:
        raise ConfigError(str(error)) from error


def _write(model: _Model, config: EngineConfig, arch: str, folder: Path) -> None:
    from triton import knobs

    from quire_engine.execution.cuda.ahead import compile_model
    from quire_kernels.compiled.packs import write_pack
    from quire_kernels.errors import KernelError

    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as cache:
        knobs.cache.dir, knobs.compilation.store_binary_only = cache, True
        try:
            compile_model(config, model.spec, arch, has_head_norms=model.has_head_norms)
            target = folder / file_name(arch, model.name)
            count = write_pack(Path(cache), arch, target)
        except KernelError as error:
            raise ConfigError(str(error)) from error
    size, seconds = target.stat().st_size / 1e6, time.monotonic() - begin
    print(f"{target}: {count} kernels, {size:.1f} MB, compiled in {seconds:.0f} s")


def _find(config: EngineConfig, shape_name: str | None) -> "_Model":
    """Find the model or the shape that was named."""
    from quire_engine.execution.cuda.ahead import spec_of
    from quire_engine.execution.cuda.weights import FileWeights
    from quire_engine.profiles.shapes import find_shape
    from quire_engine.server.model_files import find_model
    from quire_engine.server.progress import ProgressLines
    from quire_engine.server.service import choose_model_name

    if shape_name is not None:
        shape = find_shape(shape_name)
        return _Model(shape.name, spec_of(shape), shape.has_qk_norm)
    model = find_model(config, ProgressLines(sys.stderr))
    if model is None:
        raise ConfigError("there is no model to compile for: name one, or use --shape")
    weights = FileWeights(model.path)
    spec = weights.open()
    return _Model(choose_model_name(config), spec, weights.has(_NORM))


def _parser() -> FlagParser:
    parser = FlagParser(prog="quire kernels", description=_DESCRIPTION)
    parser.usage = (
        f"{parser.prog} [MODEL | --shape NAME] --arch ARCH --output FOLDER [--setting VALUE ...]"
    )
    parser.add_argument(
        "--arch",
        action="append",
        metavar="ARCH",
        help="the GPU's: sm80 (A100), sm86 (A10, A40), sm89 (L4, L40S) or sm90 (H100, H200); "
        "can be repeated",
    )
    parser.add_argument(
        "--shape", metavar="NAME", help="in place of MODEL: sizes that `quire profiles` lists"
    )
    parser.add_argument("--output", metavar="FOLDER", help="where the file goes")
    add_setting_flags(parser)
    return parser

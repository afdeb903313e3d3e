"""The light parts stay light: importing them in a fresh interpreter brings no torch."""

import subprocess
import sys
from pathlib import Path

import pytest

TORCH_FREE = [
    "quire_engine",
    "quire_engine.config",
    "quire_engine.config.flags",
    "quire_engine.config.markdown",
    "quire_engine.kvcache",
    "quire_engine.profiles",
    "quire_engine.protocol",
    "quire_engine.scheduler",
    "quire_engine.sources",
    "quire_gateway",
    "quire_operator",
    "quire_local.cli",
]

_PROGRAM = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(getattr(package, "__path__", []), package.__name__ + "."):
    if sys.argv[2] == "deep":
        importlib.import_module(module.name)
print(" ".join(name for name in ("torch", "triton", "transformers") if name in sys.modules))
"""


def _heavy_modules_after_import(module: str, depth: str, folder: Path = Path()) -> str:
    command = [sys.executable, "-c", _PROGRAM, module, depth]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
    return done.stdout.strip()


@pytest.mark.parametrize("module", TORCH_FREE)
def test_importing_a_light_package_brings_no_torch(module: str) -> None:
    depth = "top" if module == "quire_engine" else "deep"
    assert _heavy_modules_after_import(module, depth) == ""


def test_the_check_sees_torch_deep_in_a_package(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("")
    package = tmp_path / "careless"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "inner" / "__init__.py").write_text("")
    (package / "inner" / "module.py").write_text("import torch")
    assert _heavy_modules_after_import("careless", "top", tmp_path) == ""
    assert _heavy_modules_after_import("careless", "deep", tmp_path) == "torch"


def test_the_command_answers_help_without_msgspec_or_the_configuration() -> None:
    program = (
        "import sys; from quire_local.cli import main; main(['--help']); "
        "print(sorted(m for m in sys.modules if m in ('msgspec', 'quire_engine.config', 'httpx')))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert done.stdout.splitlines()[-1] == b"[]"

"""A gateway whose way of a request is compiled to C: `python -m hack.compile_gateway [FOLDER]`.

Copies the package `quire_gateway` into FOLDER and compiles, by mypyc, the modules that requests go
through: half of Python's part of a short answer is saved (docs/design/gateway.md). Whoever has
FOLDER before the installed package on its path runs the compiled one: `PYTHONPATH=FOLDER python -m
quire_gateway ...`. The sources stay beside, for messages; answers are the same. Without FOLDER it
is one in the cache, made once for each state of the sources, and printed.

It takes minutes, 3.5 GB of memory and a C compiler, and fits one version of Python and one kind of
processor: for images, not for a source distribution.
"""

import argparse
import ast
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_PACKAGE = _ROOT / "gateway" / "quire_gateway"
_CACHE = Path.home() / ".cache" / "quire" / "compiled"
_MODULES = (
    *("choosing/choose", "choosing/demand", "choosing/endpoint", "choosing/figures"),
    *("choosing/prefix_index", "choosing/queue", "choosing/rate_limit", "choosing/retry"),
    *("choosing/shares", "choosing/text_chunks"),
    *("http/client_connection", "http/deadlines", "http/engine_connection", "http/framing"),
    *("http/headers", "http/pool", "http/request", "http/sse"),
    "routing/access",
    *("serving/account", "serving/arrivals", "serving/claim", "serving/directory"),
    *("serving/exchange", "serving/fleet", "serving/gateway", "serving/inquiry", "serving/link"),
    *("serving/random_ids", "serving/record", "serving/relay", "serving/service"),
    *("serving/lengths", "serving/tallies", "serving/ticket", "serving/trace_context"),
    *("workers/bench", "workers/channel", "workers/remote", "workers/services"),
)
"""Without those that define msgspec's structures, which need to be classes of Python."""
_DATA_CLASSES = frozenset({"dataclass(slots=True)", "dataclass(slots=True, eq=False)"})


def compile_into(folder: Path) -> None:
    """Copy and compile the package.

    Raises
    ------
    SystemExit
        The folder holds such a package already, or mypyc fails, or what it makes does; messages
        are shown.
    """
    target = folder / _PACKAGE.name
    if target.exists():
        raise SystemExit(f"{target} exists: name another folder, or remove it")
    shutil.copytree(_PACKAGE, target, ignore=shutil.ignore_patterns("__pycache__"))
    for name in _MODULES:
        path = target / f"{name}.py"
        path.write_text(with_written_inits(path.read_text()))
    paths = [f"{_PACKAGE.name}/{name}.py" for name in _MODULES]
    search = os.pathsep.join(map(str, (folder.resolve(), _ROOT / "engine")))
    environment = os.environ | {"MYPYPATH": search, "PYTHONPATH": search}
    command = (sys.executable, "-m", "mypyc", "--ignore-missing-imports", *paths)
    if subprocess.run(command, cwd=folder, env=environment, stdout=2, check=False).returncode:
        raise SystemExit("mypyc failed: see above; a C compiler and Python's headers are needed")
    shutil.rmtree(folder / "build")
    if plain := [name for name in _MODULES if not any(target.glob(f"{name}.*.so"))]:
        raise SystemExit(f"mypyc has left out {', '.join(plain)}")
    _try_out(folder, search)


def compiled_once() -> Path:
    """Return the folder in the cache: compiled now, if these sources never were.

    Raises
    ------
    SystemExit
        They cannot be compiled: messages are shown.
    """
    digest = hashlib.sha256(sys.version.encode())
    for path in (*sorted(_PACKAGE.rglob("*.py")), Path(__file__)):
        digest.update(path.read_bytes())
    folder = _CACHE / f"gateway-{digest.hexdigest()[:16]}"
    if not folder.exists():
        print(f"compiling the gateway into {folder}: some minutes", file=sys.stderr)
        _CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_CACHE) as apart:
            made = Path(apart) / folder.name
            compile_into(made)
            if not folder.exists():  # another run may have made the same meanwhile
                made.rename(folder)
    return folder


def with_written_inits(source: str) -> str:
    """Write down what `dataclass` makes when a class is defined: that would not be compiled.

    A request makes ten such objects. Frozen ones are made once, and stay as they are. Comparing
    is left out: nothing that is compiled does it by fields.
    """
    lines = source.splitlines(keepends=True)
    for node in reversed(ast.parse(source).body):
        if isinstance(node, ast.ClassDef) and node.decorator_list:
            decorator = node.decorator_list[0]
            fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
            if ast.unparse(decorator) in _DATA_CLASSES and not any(map(_is_made, fields)):
                lines.insert(node.end_lineno or len(lines), _write_init(fields))
                del lines[decorator.lineno - 1]  # messages name the lines of the sources
    return "".join(lines)


def _is_made(field: ast.AnnAssign) -> bool:
    """Whether a field's default is made for each object."""
    return isinstance(field.value, ast.Call)


def _write_init(fields: list[ast.AnnAssign]) -> str:
    names = [ast.unparse(one.target) for one in fields]
    sets = "; ".join(f"self.{name} = {name}" for name in names)
    return f"    def __init__(self, {', '.join(map(ast.unparse, fields))}) -> None: {sets}\n"


def _try_out(folder: Path, search: str) -> None:
    """Start it, with a worker and a decider, and end it: what mypyc cannot do shows only then.

    Raises
    ------
    SystemExit
        It does not start.
    """
    routing = folder / "no_services.json"
    routing.write_text("[]")
    flags = ("--routing", str(routing), "--port", "0", "--management-port", "0", "--workers", "2")
    with subprocess.Popen(
        (sys.executable, "-m", "quire_gateway", *flags),
        env=os.environ | {"PYTHONPATH": search},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        is_ready = process.stdout.readline().startswith("ready: ")
        process.send_signal(signal.SIGINT)
        process.stdout.read()
    routing.unlink()
    if not is_ready or process.returncode:
        raise SystemExit("the compiled gateway does not run: see above")


def main() -> None:
    """Compile into the folder that is named, or print which has it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="where the compiled package goes")
    folder: Path | None = parser.parse_args().folder
    if folder is None:
        print(compiled_once())
    else:
        compile_into(folder)


if __name__ == "__main__":
    main()

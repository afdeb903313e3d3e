"""Files that are written when all is computed: what stands in their way is said before."""

from pathlib import Path

from quire_engine.errors import ConfigError


def check_outputs(*paths: Path | None) -> None:
    """Refuse what cannot be written, before hours of traffic are replayed for it.

    Raises
    ------
    ConfigError
        There is no such folder, it is a folder itself, or two are the same file.
    """
    found = [path.absolute() for path in paths if path is not None]
    for path in found:
        if not path.parent.is_dir():
            raise ConfigError(f"there is no folder {path.parent}: make it first")
        if path.is_dir():
            raise ConfigError(f"{path} is a folder: name a file in it")
    if len(set(found)) < len(found):
        raise ConfigError(f"{found[0]} would be written twice: name two files")


def write_output(path: Path, content: bytes) -> None:
    """Write one.

    Raises
    ------
    ConfigError
        The system does not let it, in its words.
    """
    try:
        path.write_bytes(content)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error

"""Profiles as files: which names are files, and reading them with errors that name the file."""

from pathlib import Path

from quire_engine.errors import ConfigError
from quire_engine.profiles.engine_profile import MAX_BYTES, EngineProfile, load_profile


def is_profile_file(name: str) -> bool:
    """Whether `--simulate` means a file rather than a GPU of the catalogue."""
    return name.endswith(".json") or "/" in name


def read_profile(name: str) -> EngineProfile:
    """Read a file that `quire profile` wrote.

    Raises
    ------
    ConfigError
        It cannot be read, or is none.
    """
    path = Path(name).expanduser()
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"the profile {path} cannot be read ({error.strerror}): `quire profile` writes one"
        ) from error
    try:
        return load_profile(data)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error

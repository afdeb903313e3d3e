"""The token that a Hugging Face hub knows the user by.

Found where every tool of the hub finds it: the variable HF_TOKEN, else the file that
HF_TOKEN_PATH names, else `token` in HF_HOME (~/.cache/huggingface), where `hf auth login` puts it.
"""

from collections.abc import Mapping
from pathlib import Path

from quire_engine.errors import SourceError


def read_token(token_file: str | None, environment: Mapping[str, str]) -> str | None:
    """The token, or None where the user has none.

    Parameters
    ----------
    token_file
        The setting hf_token_file, which wins over the environment.

    Raises
    ------
    SourceError
        A file was named, but cannot be read or holds no token.
    """
    if token_file is not None:
        return _read(Path(token_file).expanduser(), "--hf-token-file")
    if token := environment.get("HF_TOKEN", "").strip():
        return token
    if named := environment.get("HF_TOKEN_PATH"):
        return _read(Path(named).expanduser(), "HF_TOKEN_PATH")
    path = _login_path(environment)
    return _read(path, "hf auth login") if path is not None and path.exists() else None


def _login_path(environment: Mapping[str, str]) -> Path | None:
    if home := environment.get("HF_HOME"):
        return Path(home).expanduser() / "token"
    if home := environment.get("HOME"):
        return Path(home) / ".cache" / "huggingface" / "token"
    return None


def _read(path: Path, origin: str) -> str:
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise SourceError(
            f"cannot read the Hugging Face token in {path} ({reason}): check {origin}"
        ) from error
    if not token or not token.isascii() or len(token.split()) != 1:
        raise SourceError(f"{path} holds no Hugging Face token: check {origin}")
    return token

"""What a Hugging Face hub says of a repository: its commit and its files.

Asked through huggingface_hub; HF_ENDPOINT names another hub or a mirror, and HF_HUB_OFFLINE
keeps from asking at all. The files themselves are fetched by `quire_engine.sources.transfer`, which
checks every one against the digest that the hub names.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from huggingface_hub import HfApi, errors, hf_hub_url

from quire_engine.errors import SourceError

DEFAULT_ENDPOINT = "https://huggingface.co"
_TIMEOUT_SECONDS = 30.0
_TRUE = ("1", "on", "yes", "true")


class HubUnreachableError(Exception):
    """The hub did not answer, or may not be asked; what is in the cache may still do."""


@dataclass(frozen=True, kw_only=True)
class HubFile:
    """One file of a repository at one commit."""

    name: str
    size: int
    sha256: str | None
    """Of large files, which the hub keeps apart from git."""
    git_id: str | None
    """The SHA-1 that git names the content by."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A repository at one commit."""

    commit: str
    files: tuple[HubFile, ...]


class Hub:
    """One hub, as one user sees it."""

    def __init__(self, environment: Mapping[str, str], token: str | None) -> None:
        self.endpoint = (environment.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
        self.has_token = token is not None
        self._is_offline = environment.get("HF_HUB_OFFLINE", "").lower() in _TRUE
        # False: or else the library would look for a token by itself
        self._token: str | bool = token or False

    def look_up(self, repo: str, revision: str) -> Snapshot:
        """Resolve a revision to its commit and files.

        Raises
        ------
        HubUnreachableError
            The hub does not answer, or is in trouble.
        SourceError
            There is no such repository or revision, or it is not for this user.
        """
        if self._is_offline:
            raise HubUnreachableError("HF_HUB_OFFLINE is set")
        api = HfApi(endpoint=self.endpoint, token=self._token, library_name="quire")
        try:
            info = api.model_info(
                repo, revision=revision, files_metadata=True, timeout=_TIMEOUT_SECONDS
            )
        except errors.HfHubHTTPError as error:
            raise self._refusal(repo, revision, error) from error
        except (errors.HTTPError, OSError) as error:  # type: ignore[attr-defined]
            raise HubUnreachableError(str(error) or type(error).__name__) from error
        except ValueError as error:
            raise SourceError(
                f"{self.endpoint} does not answer as a Hugging Face hub: check HF_ENDPOINT"
            ) from error
        files = [
            HubFile(
                name=file.rfilename,
                size=file.size or 0,
                sha256=file.lfs.sha256 if file.lfs else None,
                git_id=file.blob_id,
            )
            for file in info.siblings or []
        ]
        if not info.sha:
            raise SourceError(f"{self.endpoint} names no commit for {repo}: check HF_ENDPOINT")
        return Snapshot(commit=info.sha, files=tuple(files))

    def url(self, repo: str, commit: str, name: str) -> str:
        """Where a file's content is."""
        return hf_hub_url(repo, name, revision=commit, endpoint=self.endpoint)

    def headers(self) -> dict[str, str]:
        """Headers that say who asks; not sent to other hosts that the hub redirects to."""
        return {"authorization": f"Bearer {self._token}"} if self._token else {}

    def credentials_advice(self, repo: str) -> str:
        """What to do about a refusal."""
        page = f"{self.endpoint}/{repo}"
        if self.has_token:
            return f"your token has no access: ask for it at {page}, or use another token"
        return (
            f"it is private or gated: accept its terms at {page}, and give a token with "
            "--hf-token-file or HF_TOKEN_PATH"
        )

    def _refusal(self, repo: str, revision: str, error: "errors.HfHubHTTPError") -> Exception:
        status = error.response.status_code
        where = f"{repo} at {self.endpoint}"
        if status >= 500 or status in (408, 425, 429):
            return HubUnreachableError(f"the hub answered {status}")
        if isinstance(error, errors.RevisionNotFoundError):
            return SourceError(
                f'{where} has no revision "{revision}": give a branch, a tag or a commit'
            )
        if isinstance(error, errors.DisabledRepoError):
            return SourceError(f"{where} was disabled by the hub: choose another model")
        if isinstance(error, errors.GatedRepoError) or status in (401, 403):
            missing = "" if self.has_token else "it does not exist, or "
            return SourceError(
                f"{where} answered {status}: {missing}{self.credentials_advice(repo)}"
            )
        if status == 404:
            return SourceError(
                f"{where} does not exist (404): check the name; a private one needs a token by "
                "--hf-token-file or HF_TOKEN_PATH"
            )
        return SourceError(f"{where} answered {status}: check the name and HF_ENDPOINT")

"""A Hugging Face hub on loopback: as much of its API as huggingface_hub itself asks for."""

import hashlib
import json
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from tests.unit.sources.web_server import Answer, WebState

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class HubState(WebState):
    """One repository, whose large files are on another host, as the real hub's are."""

    repo: str = "Org/Repo"
    commit: str = COMMIT
    revisions: tuple[str, ...] = ("main", "v1", "refs/pr/1")
    files: dict[str, bytes] = field(default_factory=dict)
    cdn: WebState = field(default_factory=WebState)
    cdn_url: str = ""
    token: str | None = None
    """Without it, files are refused."""
    is_private: bool = False
    wrong: dict[str, bytes] = field(default_factory=dict)
    """What is sent in place of a file's content."""

    def answer(self, path: str, headers: dict[str, str]) -> Answer:
        """The API's answer, or a file's place."""
        url = urlsplit(path)
        may_read = self.token is None or headers.get("authorization") == f"Bearer {self.token}"
        if url.path.startswith("/api/models/"):
            repo, _, revision = url.path.removeprefix("/api/models/").partition("/revision/")
            if repo != self.repo or (self.is_private and not may_read):
                return _refusal(401 if "authorization" not in headers else 404, "RepoNotFound")
            return self._info(unquote(revision))
        if not may_read:
            return _refusal(403 if "authorization" in headers else 401, "GatedRepo")
        return self._file(unquote(url.path).removeprefix(f"/{self.repo}/resolve/{self.commit}/"))

    def _info(self, revision: str) -> Answer:
        if revision not in (*self.revisions, self.commit):
            return _refusal(404, "RevisionNotFound")
        siblings = [_sibling(name, content) for name, content in self.files.items()]
        body = {"id": self.repo, "sha": self.commit, "siblings": siblings, "private": False}
        return Answer(json.dumps(body).encode(), headers={"content-type": "application/json"})

    def _file(self, name: str) -> Answer:
        if name not in self.files:
            return _refusal(404, "EntryNotFound")
        content = self.wrong.get(name, self.files[name])
        if not _is_large(name):
            return Answer(content)
        place = f"/{hashlib.sha256(name.encode()).hexdigest()}?signature=secret"
        self.cdn.answers[place] = Answer(content, headers={"etag": '"1"'})
        return Answer(status=302, headers={"location": self.cdn_url + place})

    def asked_files(self) -> list[str]:
        """Paths of the files that were asked for, in order."""
        return [path.split("/")[-1] for path, _ in self.requests if "/resolve/" in path]


def _is_large(name: str) -> bool:
    return name.endswith((".safetensors", ".gguf", ".bin"))


def _sibling(name: str, content: bytes) -> dict[str, object]:
    git_id = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    entry: dict[str, object] = {"rfilename": name, "size": len(content), "blobId": git_id}
    if _is_large(name):
        sha256 = hashlib.sha256(content).hexdigest()
        entry["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 130}
    return entry


def _refusal(status: int, code: str) -> Answer:
    return Answer(b"no", status, {"x-error-code": code})

"""A Python package index: which one is configured, and which wheel of a version it has.

The index is asked as `pip download` would: PIP_INDEX_URL, uv's variables, pip's configuration
files, else pypi.org; the simple repository API in JSON (PEP 691) or HTML (PEP 503).
"""

import configparser
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import msgspec

from quire_engine.errors import SourceError
from quire_engine.sources.addresses import redacted

DEFAULT_INDEX = "https://pypi.org/simple"
ACCEPT = (
    "application/vnd.pypi.simple.v1+json, "
    "application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
)
_INDEX_VARIABLES = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")


@dataclass(frozen=True)
class IndexSettings:
    """Which index to ask, and whose certificates to trust."""

    url: str
    certificates: str | None
    """A file of certificate authorities; None trusts those of SSL_CERT_FILE or the system."""


@dataclass(frozen=True)
class Wheel:
    """One wheel as the index describes it."""

    filename: str
    url: str
    sha256: str | None
    size: int | None


def index_settings(environment: Mapping[str, str]) -> IndexSettings:
    """The configured index: environment first, then pip's configuration files.

    Raises
    ------
    SourceError
        The configured address is not an HTTP address.
    """
    options = _pip_options(environment)
    named = next((environment[name] for name in _INDEX_VARIABLES if environment.get(name)), None)
    url = (named or options.get("index-url") or DEFAULT_INDEX).rstrip("/")
    if urlsplit(url).scheme not in ("http", "https"):
        raise SourceError(f"the package index {redacted(url)} is not an http(s) address")
    return IndexSettings(url, environment.get("PIP_CERT") or options.get("cert"))


def _pip_options(environment: Mapping[str, str]) -> dict[str, str]:
    """Pip's [global] and [download] options; later files win, as in pip."""
    home = Path(environment.get("HOME", "/"))
    named = environment.get("PIP_CONFIG_FILE")
    files = [
        Path("/etc/pip.conf"),
        home / ".pip" / "pip.conf",
        Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf",
        Path(sys.prefix) / "pip.conf",
        *([Path(named)] if named else []),
    ]
    parser = configparser.RawConfigParser()
    try:
        parser.read(files)
    except (configparser.Error, UnicodeDecodeError) as error:
        raise SourceError(f"pip's configuration cannot be read: {error}") from error
    sections = [name for name in ("global", "download") if parser.has_section(name)]
    return {key: value for name in sections for key, value in parser.items(name)}


def normalized(package: str) -> str:
    """A package's name as indexes write it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", package).lower()


def choose_wheel(wheels: list[Wheel], package: str, version: str) -> Wheel:
    """The wheel of this version that holds for every platform: models are data.

    Raises
    ------
    SourceError
        There is none; the message says which versions there are.
    """
    versions: dict[str, list[Wheel]] = {}
    for wheel in wheels:
        name, number, *tags = wheel.filename.removesuffix(".whl").split("-")
        if normalized(name) == normalized(package) and tags:
            versions.setdefault(number, []).append(wheel)
    if version not in versions:
        there = ", ".join(list(versions)[-8:]) or "none"
        raise SourceError(f"{package} has no wheel of version {version}; versions: {there}")
    for wheel in versions[version]:
        if wheel.filename.endswith("-any.whl"):
            return wheel
    names = ", ".join(wheel.filename for wheel in versions[version][:3])
    raise SourceError(
        f"{package}=={version} has no wheel for every platform (only {names}), and models are "
        "read from no other: choose another version or source"
    )


def parse_json(body: bytes, page_url: str) -> list[Wheel]:
    """Wheels of a page in JSON (PEP 691)."""
    page: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
    files = [file for file in page["files"] if file["filename"].endswith(".whl")]
    return [_from_json(file, page_url) for file in files]


def _from_json(file: dict[str, Any], page_url: str) -> Wheel:
    url = urljoin(page_url, file["url"])
    return Wheel(file["filename"], url, file["hashes"].get("sha256"), file.get("size"))


def parse_html(body: bytes, page_url: str) -> list[Wheel]:
    """Wheels of a page in HTML (PEP 503): links whose fragment is the digest."""
    links = _Links()
    links.feed(body.decode("utf-8", "replace"))
    return [_from_link(urljoin(page_url, link)) for link in links.found if ".whl" in link]


def _from_link(link: str) -> Wheel:
    url, fragment = urldefrag(link)
    name = unquote(urlsplit(url).path.rsplit("/", 1)[-1])
    sha256 = fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else None
    return Wheel(name, url, sha256, None)


class _Links(HTMLParser):
    """Collects the targets of all links."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the target of a link."""
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]

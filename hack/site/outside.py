"""Files outside of docs/ that pages link to: each becomes a page of the site, so no link leaves it.

On a checkout the links lead to the files themselves. A Markdown file becomes a page with its own
links put right, any other a page that shows its text, a folder a list of its files.
"""

import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = "docs"
NAMED = {
    "CHANGELOG.md": "project/changes.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "charts/quire/README.md": "reference/helm-values.md",
}
"""Where some of them are in the site."""

_LINK = re.compile(r"(\]\()(?!\w+:|#|/)([^)#\s]+)(#[^)\s]*)?(\))")
_LANGUAGES = {".yaml": "yaml", ".json": "json", ".py": "python", ".md": "markdown"}
_MAX_COLOURED_BYTES = 20_000
"""More than this is shown without colours: they take seconds."""


def page_of(path: str) -> str:
    """The page that shows a file or folder, by its path from the repository's root."""
    if path in NAMED:
        return NAMED[path]
    return f"files/{path}/index.md" if (ROOT / path).is_dir() else f"files/{path}.md"


def put_right(text: str, path: str, to: Callable[[str], str | None], page: str) -> str:
    """Rewrite the relative links of a Markdown text.

    Parameters
    ----------
    path
        The text's file, from the repository's root: what its links are relative to.
    to
        Of a link's target from the repository's root, the page of the site; None leaves the link.
    page
        The page of the site that the text becomes, from the site's root.
    """

    def rewritten(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[2]))
        place = to(target)
        if place is None:
            return match[0]
        relative = posixpath.relpath(place, posixpath.dirname(page) or ".")
        return f"{match[1]}{relative}{match[3] or ''}{match[4]}"

    return _LINK.sub(rewritten, text)


def in_site(target: str) -> str:
    """Where a link of a file that became a page leads: a page of docs/, or such a page."""
    inside = f"{DOCS}/"
    return target.removeprefix(inside) if target.startswith(inside) else page_of(target)


def outside(target: str) -> str | None:
    """The page of a file outside of docs/; None of what is inside and keeps its link."""
    return None if target.startswith(f"{DOCS}/") else page_of(target)


def targets(text: str, path: str) -> Iterator[str]:
    """Paths from the repository's root that a Markdown text links to and that are not in docs/."""
    for match in _LINK.finditer(text):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[2]))
        if not target.startswith((f"{DOCS}/", "../")) and target != DOCS:
            yield target


def pages(sources: dict[str, str]) -> dict[str, str]:
    """All pages for what these files link to, and what those link to in turn: page to text.

    What is not there has no page, so that the builder names the link that leads to nothing.
    """
    waiting = [one for path, text in sources.items() for one in targets(text, path)]
    waiting += NAMED
    made: dict[str, str] = {}
    while waiting:
        path = waiting.pop()
        page = page_of(path)
        if page not in made and (ROOT / path).exists():
            made[page] = _shown(path, page)
            waiting += _linked(path)
    return made


def _linked(path: str) -> Iterator[str]:
    place = ROOT / path
    if place.is_dir():
        yield from (f"{path}/{one.name}" for one in sorted(place.iterdir()) if one.is_file())
    elif path in NAMED:
        yield from targets(place.read_text("utf-8"), path)


def _shown(path: str, page: str) -> str:
    place = ROOT / path
    if place.is_dir():
        names = sorted(one.name for one in place.iterdir() if one.is_file())
        return _hidden(f"# {path}\n\n" + "".join(f"- [{one}]({one}.md)\n" for one in names))
    text = place.read_text("utf-8")
    if path in NAMED:
        return put_right(text, path, in_site, page)
    is_short = len(text) <= _MAX_COLOURED_BYTES
    language = _LANGUAGES.get(place.suffix, "text") if is_short else "text"
    return _hidden(f"# {path}\n\n`````{language}\n{text}`````\n")


def _hidden(text: str) -> str:
    """Not found by the search: files are no documentation."""
    return f"---\nsearch:\n  exclude: true\nhide: [navigation]\n---\n\n{text}"

"""Pages of docs/ as tests see them: their blocks of code, headings and links."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_BLOCK = re.compile(r"^(`{3,})([^\n]*)\n(.*?)^\1[ ]*$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_LANGUAGE = ".zh"


@dataclass(frozen=True)
class Block:
    """A fenced block of code."""

    page: str
    """The page's path, from docs/ or the repository's root."""
    number: int
    """Which of the page's blocks it is, from 0."""
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.number}"


@cache
def blocks_of(page: str) -> tuple[Block, ...]:
    """All blocks of a page."""
    found = _BLOCK.finditer(read(page))
    return tuple(Block(page, number, one[2].strip(), one[3]) for number, one in enumerate(found))


def prose_of(page: str) -> str:
    """A page without its blocks."""
    return _BLOCK.sub("", read(page))


def links_of(page: str) -> list[str]:
    """Where a page's links lead, in any order."""
    return sorted(_LINK.findall(prose_of(page)))


@cache
def read(page: str) -> str:
    """A page's text."""
    place = DOCS / page
    return (place if place.exists() else ROOT / page).read_text("utf-8")


def english_pages() -> list[str]:
    """Pages that are no translations."""
    return [one for one in _pages() if not is_translation(one)]


def translations() -> list[str]:
    """Pages that are."""
    return [one for one in _pages() if is_translation(one)]


def is_translation(page: str) -> bool:
    """Whether a page is the Chinese one of another."""
    return Path(page).stem.endswith(_LANGUAGE)


def translation_of(page: str) -> str:
    """The path that a page's translation has."""
    return page.removesuffix(".md") + f"{_LANGUAGE}.md"


def original_of(page: str) -> str:
    """The page that a translation is of."""
    return page.removesuffix(f"{_LANGUAGE}.md") + ".md"


def blocks_in(*languages: str) -> list[Block]:
    """Blocks of these languages on all English pages, and in the README."""
    pages = ["README.md", *english_pages()]
    return [one for page in pages for one in blocks_of(page) if one.language in languages]


def _pages() -> list[str]:
    return sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))

"""Anchors of translations: headings have the English ones, so that links hold in any language."""

import re
from collections.abc import Iterator

from markdown.extensions.toc import unique
from pymdownx.slugs import slugify

_HEADING = re.compile(r"(#{1,6}) +(.*?) *$")
_FENCE = re.compile(r"(`{3,}|~{3,})")
_MARKUP = re.compile(r"!?\[([^\]]*)\]\([^)]*\)|[`*]")
_slug = slugify(case="lower")


def headings(text: str) -> Iterator[tuple[int, int, str]]:
    """Of each heading outside of code: the line's number from 0, its level and its words."""
    fence = ""
    for number, line in enumerate(text.splitlines()):
        mark = _FENCE.match(line.strip())
        if mark and (not fence or line.strip() == fence):
            fence = "" if fence else mark[1]
        elif not fence and (found := _HEADING.match(line)):
            yield number, len(found[1]), found[2]


def slugs(text: str) -> list[str]:
    """The anchors that the headings get."""
    used: set[str] = set()
    return [unique(_slug(_MARKUP.sub(r"\1", words), "-"), used) for _, _, words in headings(text)]


def with_anchors_of(translation: str, original: str) -> str:
    """The translation, with the anchors of the original's headings.

    Raises
    ------
    ValueError
        It does not have the same headings.
    """
    found = list(headings(translation))
    wanted = slugs(original)
    if [level for _, level, _ in found] != [level for _, level, _ in headings(original)]:
        raise ValueError(
            f"has {len(found)} headings where the original has {len(wanted)}, or others"
        )
    lines = translation.splitlines()
    for (number, _, _), slug in zip(found, wanted, strict=True):
        lines[number] += f" {{#{slug}}}"
    return "\n".join(lines) + "\n"

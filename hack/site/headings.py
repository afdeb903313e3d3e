"""Translations as the builder gets them: with the anchors of the original, and lines joined."""

import re
from collections.abc import Iterator

from markdown.extensions.toc import unique
from pymdownx.slugs import slugify

_HEADING = re.compile(r"(#{1,6}) +(.*?) *$")
_FENCE = re.compile(r"(`{3,}|~{3,})")
_MARKUP = re.compile(r"!?\[([^\]]*)\]\([^)]*\)|[`*]")
_NO_BLANK = "\u3000-\u303f\u4e00-\u9fff\uff00-\uffef"
_BREAK = re.compile(rf"(?<=[{_NO_BLANK}])\n *(?=[{_NO_BLANK}])")
_PUNCTUATION = "\u3001\u3002\uff0c\uff1a\uff1b\uff01\uff1f\uff08\uff09"
_BREAK_AFTER = re.compile(rf"(?<=[{_PUNCTUATION}])\n *(?!\d+\. )(?=[\w`\[*(])")
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


def joined(text: str) -> str:
    """A Chinese text without line breaks inside of sentences, which browsers show as blanks."""
    parts = re.split(r"(^`{3,}.*?^`{3,}$)", text, flags=re.DOTALL | re.MULTILINE)
    for place in range(0, len(parts), 2):
        parts[place] = _BREAK_AFTER.sub("", _BREAK.sub("", parts[place]))
    return "".join(parts)


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

"""What the site's builder asks of us: see `hooks` in mkdocs.yml.

docs/*.md ──────────► links out of docs/ lead to pages, translations have the original's anchors
files they link to ─► pages of their own (`outside`)
"""

import logging
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from hack.site import outside
from hack.site.headings import joined, with_anchors_of

_LANGUAGE = ".zh"
_PICTURE = f"{_LANGUAGE}.svg"
_LOG = logging.getLogger("mkdocs.hooks.quire")


@event_priority(-200)  # after the plugin of languages, which drops files that are not on the disk
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file outside of docs/ that a page links to."""
    docs = Path(config.docs_dir)
    sources = {
        f"{outside.DOCS}/{path.relative_to(docs)}": path.read_text("utf-8")
        for path in docs.rglob("*.md")
    }
    languages: Any = config.plugins["i18n"]
    language = languages.current_language
    prefix = "" if language == "en" else f"{language}/"
    for place, text in outside.pages(sources).items():
        file = File.generated(config, place, content=text)
        file.dest_uri = prefix + file.dest_uri
        files.append(file)
    return files


def on_page_markdown(
    markdown: str,
    page: Page,
    config: MkDocsConfig,
    files: Files,  # noqa: ARG001 - the builder's
) -> str:
    """Put right what a checkout reads in another way than a browser."""
    source = page.file.src_uri
    if page.file.generated_by is not None:
        return markdown
    path = Path(config.docs_dir) / source
    is_translation = path.stem.endswith(_LANGUAGE)
    to = _outside_or_translated if is_translation else outside.outside
    markdown = outside.put_right(markdown, f"{outside.DOCS}/{source}", to, source)
    if is_translation:
        original = path.with_name(path.stem.removesuffix(_LANGUAGE) + path.suffix)
        try:
            return joined(with_anchors_of(markdown, original.read_text("utf-8")))
        except (OSError, ValueError) as error:
            _LOG.warning("%s: %s", source, error)
    return markdown


def _outside_or_translated(target: str) -> str | None:
    """As `outside` says; translated pictures have the original's name in a language's site."""
    inside = f"{outside.DOCS}/"
    if target.startswith(inside) and target.endswith(_PICTURE):
        return target.removeprefix(inside).removesuffix(_PICTURE) + ".svg"
    return outside.outside(target)

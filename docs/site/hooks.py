"""Brings files from outside of docs/ into the site where its pages link to them.

MkDocs knows the files of docs/ only. The README is the site's first page, other documents of the repository keep their
paths, and any other file that a document links to becomes a page that shows its text.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCS = "docs/"
FIRST = "README.md"
DOCUMENTS = (FIRST, "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE")

_log = logging.getLogger("mkdocs.plugins.mrt")
_LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)#\s]+)(?=[)#])")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the documents outside of docs/, and what documents link to there."""
    waiting = [*DOCUMENTS, *(DOCS + page.src_uri for page in files.documentation_pages())]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        if not path.startswith(DOCS):
            files.append(File.generated(config, _page_of(path), content=_text(path)))
        if path.endswith(".md"):
            linked = {_target(path, link) for link in _LINK.findall((ROOT / path).read_text())}
            new = {name for name in linked - seen if not name.startswith(DOCS) and (ROOT / name).is_file()}
            waiting.extend(sorted(new))
            seen |= new
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Points links at the pages that the linked files have become."""
    source = _source_of(page.file.src_uri)
    return _LINK.sub(lambda link: _rewritten(source, page.file.src_uri, link[1]), markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Warns of lists and tables without a blank line before: Python-Markdown takes them for text."""
    text = re.sub(r"<pre>.*?</pre>", "", html, flags=re.DOTALL)
    for line in re.findall(r"^(?:[-*] |\d+\. |\| ).{0,60}", text, re.MULTILINE):
        _log.warning("%s: %r is shown as text; put a blank line before the list or table", page.file.src_uri, line)
    return html


def _rewritten(source: str, page: str, link: str) -> str:
    target = _target(source, link)
    return posixpath.relpath(_page_of(target), posixpath.dirname(page)) if (ROOT / target).is_file() else link


def _target(source: str, link: str) -> str:
    """The path in the repository that a link of the document `source` means."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def _page_of(path: str) -> str:
    """Where a file of the repository lies in the site."""
    if path == FIRST:
        return "index.md"
    if path.startswith(DOCS):
        return path.removeprefix(DOCS)
    return path if path.endswith(".md") else f"files/{path}.md"


def _source_of(page: str) -> str:
    """The file of the repository that a page was made of."""
    if page == "index.md":
        return FIRST
    if page.startswith("files/"):
        return page.removeprefix("files/").removesuffix(".md")
    return page if (ROOT / page).is_file() else DOCS + page


def _text(path: str) -> str:
    """What the page of a file outside of docs/ says."""
    text = (ROOT / path).read_text()
    if path.endswith(".md"):
        return text
    language = "python" if path.endswith(".py") else "text"
    return f"# {posixpath.basename(path)}\n\n`{path}`\n\n````{language}\n{text}\n````\n"

"""The site of the documents: every page is in its navigation once, and it needs no other host to be read."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "docs" / "site"
OUTSIDE = {"index.md": "README.md", "CHANGELOG.md": "CHANGELOG.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}


def test_every_document_is_in_the_navigation_once() -> None:
    named = Counter(re.findall(r"^ +- .*: (\S+\.md)$", (SITE / "mkdocs.yml").read_text(), re.MULTILINE))
    documents = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    assert named.keys() == documents | OUTSIDE.keys()
    assert set(named.values()) == {1}
    assert [path for path in OUTSIDE.values() if not (ROOT / path).is_file()] == []


@pytest.mark.skipif(importlib.util.find_spec("material") is None, reason="mkdocs-material is not installed (make docs)")
def test_the_site_is_built_and_asks_no_other_host(tmp_path: Path) -> None:
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    build(load_config(str(SITE / "mkdocs.yml"), site_dir=str(tmp_path), strict=True))
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) > 20
    foreign = re.compile(r'<(?:script|img|link|iframe)[^>]*(?:src|href)="?(?:https?:)?//[^>]*>')
    assert [found for page in pages for found in foreign.findall(page.read_text())] == []

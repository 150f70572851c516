"""docs/kernels.md shows what its commands print."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "kernels.md"
LEFT_OUT = "…"


@pytest.mark.slow
def test_the_walk_prints_what_the_page_shows() -> None:
    """Line by line, in order; what a line leaves out behind `…` may be anything."""
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```.*?```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 6
    for code, shown in blocks:
        with redirect_stdout(StringIO()) as printed:
            exec(compile(code, str(PAGE), "exec"), names)
        rest = iter([line.strip() for line in printed.getvalue().splitlines()])
        for line in shown.splitlines():
            begin = line.split(LEFT_OUT)[0].strip()
            whole = LEFT_OUT not in line
            assert any(found == begin if whole else found.startswith(begin) for found in rest), line

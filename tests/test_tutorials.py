"""Tutorials and how-to pages do what they print: every command and every line of Python, in an empty folder."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from tests.printed import difference, run_steps, steps_of

ROOT = Path(__file__).resolve().parents[1]
NEEDS = {
    ("start/onnx", "start/microcontroller", "howto/losing_layer", "howto/deploy"): ("onnxruntime",),
    ("start/pytorch",): ("torch",),
    ("start/huggingface",): ("torch", "transformers"),
    ("howto/custom_data",): ("PIL",),
    ("howto/bound",): (),
    ("howto/plugin",): ("pip", "setuptools"),
}
"""Pages that are read one after the other, in one folder, and the packages that they need beside those of MRT."""


def test_every_page_is_run() -> None:
    pages = [name for names in NEEDS for name in names]
    found = [f"{folder}/{path.stem}" for folder in ("start", "howto") for path in (ROOT / "docs" / folder).glob("*.md")]
    assert sorted(found) == sorted(pages)


@pytest.mark.slow
@pytest.mark.parametrize("names", NEEDS, ids="+".join)
def test_pages_do_what_they_print(names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = [package for package in NEEDS[names] if importlib.util.find_spec(package) is None]
    missing += [compiler for compiler in ("gcc", "g++") if shutil.which(compiler) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not found")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for name in names:
        run_steps(steps_of((ROOT / "docs" / f"{name}.md").read_text()))


@pytest.mark.parametrize(
    ("expected", "output", "unlike"),
    [
        ("a 99.60 %", "a  99.40\n%", None),
        ("a 99.60 %", "a 90.00 %", "expected: a 99.60 %"),
        ("a … d", "a b c d", None),
        ("a … d", "a d", None),
        ("a … d", "a b c d e", "expected: d"),
        ("a", "a b", "not expected: b"),
        ("7", "8", "expected: 7"),
        ("… b …", "a c", "expected: b"),
        ("1,000 bytes", "1010 bytes", None),
    ],
)
def test_output_is_compared_word_by_word(expected: str, output: str, unlike: str | None) -> None:
    assert difference(expected, output) == unlike


def test_blocks_are_found_as_they_stand() -> None:
    document = """```python
print(1)
```

```text
1
```

```console
$ echo a \\
  b
a b
$ true
```

```c title="main.c"
int x;
```
"""
    steps = [(step.kind, step.code.split(), step.expected) for step in steps_of(document)]
    assert steps == [
        ("python", ["print(1)"], "1\n"),
        ("console", ["echo", "a", "b"], "a b\n"),
        ("console", ["true"], None),
        ("file", ["int", "x;"], None),
    ]
    assert steps_of(document)[3].name == "main.c"

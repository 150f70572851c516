"""Runs the blocks of a document as they are printed, and compares what they print with what the document prints.

A block of `console` holds commands, each behind "$ ", and below it what it prints. A block of `python` is run in the
names that those before it left; a block of `text` right behind it is what it prints. In both "…" stands for anything.
A block of any language with a title is the file of that name. Other blocks are for reading.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

TOLERANCE = 0.03
"""Relative, of numbers: the float network, and so what is chosen by it, differs by machine in its last bits."""

_BLOCK = re.compile(r'^```(\w+)(?: title="([\w./-]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Step:
    """One command, block of Python or file, called `name`.

    expected: what the document says that it prints, None where it says nothing.
    """

    kind: str
    code: str
    expected: str | None = None
    name: str = ""


def steps_of(document: str) -> list[Step]:
    """What a document does, in its order."""
    steps: list[Step] = []
    end = 0
    for block in _BLOCK.finditer(document):
        kind, name, body = block[1], block[2], block[3]
        if name:
            steps.append(Step("file", body, name=name))
        elif kind == "console":
            steps += _commands(body)
        elif kind == "python":
            steps.append(Step(kind, body))
        elif kind == "text":
            assert not document[end : block.start()].strip(), f"no block of python stands right before: {body}"
            steps[-1] = Step(steps[-1].kind, steps[-1].code, body)
        end = block.end()
    return steps


def _commands(block: str) -> list[Step]:
    """The commands of a console; a line that ends in a backslash goes on."""
    assert block.startswith("$ "), block
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    found = [re.fullmatch(r"((?:[^\n]*\\\n)*[^\n]*)\n(.*)", part, re.DOTALL) for part in parts]
    return [Step("console", m[1].replace("\\\n", " "), m[2] or None) for m in found if m is not None]


def run_steps(steps: list[Step]) -> None:
    """Runs them in the working directory; AssertionError where a command fails or prints something else."""
    names: dict[str, object] = {"__name__": "__main__"}
    for step in steps:
        output = _done(step, names)
        if step.expected is not None:
            unlike = difference(step.expected, output)
            assert unlike is None, f"{step.code}\n{unlike}\nprinted:\n{output}"


def _done(step: Step, names: dict[str, object]) -> str:
    if step.kind == "file":
        Path(step.name).write_text(step.code)
        return ""
    return _printed_by_python(step.code, names) if step.kind == "python" else _printed_by_command(step.code)


def _printed_by_python(code: str, names: dict[str, object]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, "<document>", "exec"), names)
    return printed.getvalue()


def _printed_by_command(command: str) -> str:
    """`mrt` runs in this process, which has loaded what it needs already; all else in a shell that finds the programs
    of this Python."""
    if command.startswith("mrt "):
        from mrt.cli import app

        result = CliRunner().invoke(app, shlex.split(command, comments=True)[1:], catch_exceptions=False)
        assert result.exit_code == 0, f"{command}: {result.output}"
        return result.stdout
    here = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = os.environ | {"PATH": here}
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def difference(expected: str, output: str) -> str | None:
    """Where the words of the output are not those expected; None where they are."""
    words, at = output.split(), 0
    runs = [run.split() for run in expected.split("…")]
    for number, run in enumerate(runs):
        ends = [len(words) - len(run)] if number == len(runs) - 1 else range(at, len(words) - len(run) + 1)
        starts = [at] if number == 0 else [start for start in ends if start >= at]
        fitting = [start for start in starts if _alike(run, words[start : start + len(run)])]
        if not fitting:
            return f"expected: {' '.join(run)}"
        at = fitting[0] + len(run)
    return None if at == len(words) else f"not expected: {' '.join(words[at:])}"


def _alike(expected: list[str], words: list[str]) -> bool:
    return len(expected) == len(words) and all(map(_same_word, expected, words))


def _same_word(expected: str, word: str) -> bool:
    if expected == word:
        return True
    numbers = _number(expected), _number(word)
    if numbers[0] is None or numbers[1] is None:
        return False
    return abs(numbers[0] - numbers[1]) <= TOLERANCE * abs(numbers[0])


def _number(word: str) -> float | None:
    found = re.fullmatch(r"[(]?([+-]?\d[\d,]*(?:\.\d+)?)[%,.;:)]*", word)
    return None if found is None else float(found[1].replace(",", ""))

"""What the command lines of benchmarks share: errors of one line, and readers of values."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TypeVar

from instruction_sets import ISA

T = TypeVar("T")


class Parser(argparse.ArgumentParser):
    """A parser whose description is a module's text."""

    def __init__(self, description: str | None) -> None:
        super().__init__(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message: str) -> NoReturn:
        """One line, without the usage: it names the option, what was found and what is needed."""
        self.exit(2, f"{self.prog}: {message}\n")


def whole(least: int) -> Callable[[str], int]:
    """What reads a whole number from `least` on."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} was found; a whole number from {least} on is needed")
        return int(text)

    return read


def one_of(choices: Sequence[str]) -> Callable[[str], str]:
    """What reads one of some words."""

    def read(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(f"{text!r} was found; one of {', '.join(choices)} is needed")
        return text

    return read


def listed(item: Callable[[str], T]) -> Callable[[str], list[T]]:
    """What reads values separated by commas, each once."""

    def read(text: str) -> list[T]:
        return list(dict.fromkeys(item(part) for part in text.split(",")))

    return read


def new_file(text: str) -> Path:
    """What reads the name of a file in a folder that exists."""
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} was found; a file in a folder that exists is needed")
    return path


def folder(text: str) -> Path:
    """What reads the name of a folder that exists or can be made."""
    path = Path(text)
    if not next(each for each in (path, *path.absolute().parents) if each.exists()).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} was found; a folder is needed")
    return path


def seconds(text: str) -> float:
    """What reads a time above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} was found; a number of seconds above 0 is needed")
    return value


def add_isa(parser: argparse.ArgumentParser) -> None:
    """Adds the option of `instruction_sets.ISA`."""
    parser.add_argument("--isa", type=one_of(list(ISA)), default="native", help="native, vnni or avx2 at most")


def add_turns(parser: argparse.ArgumentParser) -> None:
    """Adds the options of what is measured in turns."""
    parser.add_argument("--json", type=new_file, metavar="FILE", help="where the figures are written, too")
    parser.add_argument("--work", type=folder, metavar="FOLDER", help="keeps networks and modules for the next run")
    parser.add_argument("--rounds", type=whole(1), default=10, help="turns of each engine (10)")
    parser.add_argument("--seconds", type=seconds, default=0.3, help="of each turn (0.3)")


@contextmanager
def work_folder(given: Path | None) -> Iterator[Path]:
    """The folder of --work, or one that is removed in the end."""
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)

"""Names of foreign files where there is little room: what they share is left out, and then what is in the middle."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

ROW, LABEL = 26, 14
"""Letters that there is room for in a row, and below a chart."""


def shortened(name: str, most: int) -> str:
    """At most so many characters of a name, two thirds of them from its end, without what cannot be printed."""
    clean = "".join(letter if letter.isprintable() else "\ufffd" for letter in name)
    if len(clean) <= most:
        return clean
    start = (most - 1) // 3
    return f"{clean[:start]}…{clean[len(clean) - (most - 1 - start) :]}"


def plain(names: Iterable[str]) -> dict[str, str]:
    """Names without what most of them begin or end with, such as /model. and _output_0; those that would then be the
    same stay whole."""
    every = list(dict.fromkeys(names))
    start = _shared([name[: found.end()] for name in every for found in _BREAK.finditer(name)], len(every))
    end = _shared([name[found.start() :] for name in every for found in _BREAK.finditer(name)], len(every))
    bare = {name: name.removeprefix(start).removesuffix(end) or name for name in every}
    times = Counter(bare.values())
    return {name: short if times[short] == 1 else name for name, short in bare.items()}


def _shared(pieces: Iterable[str], count: int) -> str:
    """The longest piece that more than half of the names have."""
    return max(
        (piece for piece, times in Counter(pieces).items() if times > 2 and 2 * times > count), key=len, default=""
    )


_BREAK = re.compile(r"[/._:]+")


def label(name: str) -> str:
    return shortened(name, LABEL)


def row(name: str) -> str:
    return shortened(name, ROW)


def instruction(name: str) -> str:
    """What a manual calls an instruction, of LLVM's name for it: llvm.x86.avx2.pmadd.wd is pmaddwd."""
    if not name.startswith("llvm."):
        return name
    words = [word for word in name.split(".")[2:] if not _TYPE.fullmatch(word)]
    return "".join(words[1:] or words) or name


_TYPE = re.compile(r"\d+|(nx)?v\d+[a-z]+\d+|i\d+")

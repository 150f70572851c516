"""Names of foreign files where there is little room: such names differ at their ends, so the middle is left out."""

from __future__ import annotations

import re

ROW, LABEL = 26, 14
"""Letters that there is room for in a row, and below a chart."""


def shortened(name: str, most: int) -> str:
    """At most so many characters of a name, two thirds of them from its end, without what cannot be printed."""
    clean = "".join(letter if letter.isprintable() else "\ufffd" for letter in name)
    if len(clean) <= most:
        return clean
    start = (most - 1) // 3
    return f"{clean[:start]}…{clean[len(clean) - (most - 1 - start) :]}"


def label(name: str) -> str:
    return shortened(name, LABEL)


def row(name: str) -> str:
    return shortened(name, ROW)


def instruction(name: str) -> str:
    """What a manual calls an instruction, of LLVM's name for it: llvm.x86.avx512.vpdpbusd.512 is vpdpbusd."""
    if not name.startswith("llvm."):
        return name
    words = [word for word in name.split(".")[2:] if not _TYPE.fullmatch(word)]
    return ".".join(words[1:] or words) or name


_TYPE = re.compile(r"\d+|(nx)?v\d+[a-z]+\d+|i\d+")

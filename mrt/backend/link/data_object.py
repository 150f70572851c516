"""Object files that hold data under one symbol, written without LLVM, which takes longer for weights than for kernels.

The format is that of the ELF specification (System V ABI, chapters 4 and 5), 64 bits, the lower byte first: a header,
what the sections hold, and a table of the sections.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from mrt.runtime.elf import ELF_64, HEADER_64

IDENTITY = ELF_64 + b"\x01"
"""What such files begin with."""
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATABLE, VERSION = 1, 1
BITS, SYMBOLS, STRINGS = 1, 2, 3
"""Kinds of sections."""
IN_MEMORY = 2
"""The flag of a section that whoever loads the library can read."""
GLOBAL_OBJECT = 1 << 4 | 1
ALIGNMENT = 16
NAMES = ("", ".rodata", ".note.GNU-stack", ".symtab", ".strtab", ".shstrtab")
"""Of the sections, in their order. The third is empty: it says that nothing is executed on the stack."""
DATA, SYMBOL_NAMES, SECTION_NAMES = 1, 4, 5
"""Places of sections among these."""


def data_object(symbol: str, content: bytes | memoryview, like: bytes) -> bytes | None:
    """The object file of which a linker takes `content` as read-only data by the name of `symbol`.

    like: an object file for the machine that this one is for. None where it is in another format.
    """
    if not like.startswith(IDENTITY):
        return None
    identity, _, machine, _, _, _, _, flags, *_ = HEADER_64.unpack_from(like)
    names, places = _strings(NAMES)
    symbol_names, (place,) = _strings([symbol])
    # What comes before the first global symbol, here one that is empty, is seen by this file only.
    symbols = bytes(SYMBOL.size) + SYMBOL.pack(place, GLOBAL_OBJECT, 0, DATA, 0, len(content))
    sections = [
        (BITS, IN_MEMORY, content, 0, 0, 0),
        (BITS, 0, b"", 0, 0, 0),
        (SYMBOLS, 0, symbols, SYMBOL_NAMES, 1, SYMBOL.size),
        (STRINGS, 0, symbol_names, 0, 0, 0),
        (STRINGS, 0, names, 0, 0, 0),
    ]
    parts, table, end = [], bytes(SECTION.size), HEADER_64.size
    for name, (kind, kept, part, names_at, first_global, entry) in zip(places[1:], sections, strict=True):
        table += SECTION.pack(name, kind, kept, 0, end, len(part), names_at, first_global, ALIGNMENT, entry)
        parts += [part, bytes(-len(part) % ALIGNMENT)]
        end += len(part) + len(parts[-1])
    counts = HEADER_64.size, 0, 0, SECTION.size, len(NAMES), SECTION_NAMES
    header = HEADER_64.pack(identity, RELOCATABLE, machine, VERSION, 0, 0, end, flags, *counts)
    return b"".join([header, *parts, table])


def _strings(names: Sequence[str]) -> tuple[bytes, list[int]]:
    """A table of strings, each of which ends with a byte 0, as it begins with one; and where each of `names` begins."""
    table, places = b"\0", []
    for name in names:
        places.append(len(table) if name else 0)
        table += name.encode() + b"\0" if name else b""
    return table, places

"""Headers of files in the ELF format: for which machines the file of a library is, and what else they tell."""

from __future__ import annotations

import struct
from pathlib import Path

MAGIC = b"\x7fELF"
ELF_64 = MAGIC + b"\x02"
"""What a file of the 64-bit format begins with."""
HEADER_64 = struct.Struct("<16sHHIQQQIHHHHHH")
"""Its header, the lower byte of each number first: what it begins with, the kind of file, the machine, the version, an
address, the places of the segments and of the section headers, flags, the size of this header, those and the numbers of
segments and of section headers, and which section holds the names of all."""
MACHINES = {3: "x86", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv"}
"""The format's numbers of machines that LLVM makes code for, and their names."""
HEADER_BYTES = 20
"""Up to the end of that number, alike in files of 32 and of 64 bits."""
BIG_ENDIAN = 2
OWN = Path("/proc/self/exe")
"""What this process executes, where Linux runs it."""


def machine_of(content: bytes) -> str:
    """The machines that a file of this content is for; an empty string where it is not in this format."""
    if not content.startswith(MAGIC) or len(content) < HEADER_BYTES:
        return ""
    number = int.from_bytes(content[HEADER_BYTES - 2 : HEADER_BYTES], "big" if content[5] == BIG_ENDIAN else "little")
    return MACHINES.get(number, f"machine {number} of the ELF format")


def foreign_machine(content: bytes) -> str:
    """The machines that a file of this content is for, if they are known to be others than this one; else ""."""
    try:
        with OWN.open("rb") as file:
            own = machine_of(file.read(HEADER_BYTES))
    except OSError:
        return ""
    found = machine_of(content)
    return found if own and found != own else ""

"""Programs for other machines than this one: cross compilers, and emulators that run what they make."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

import pytest

MACHINES = ("aarch64", "riscv64")
"""As Debian calls the machines: gcc-MACHINE-linux-gnu has the compiler, qemu-user the emulator of each."""


@dataclass(frozen=True)
class Emulation:
    """compiler: of C. emulator: what a command begins with that runs a program."""

    compiler: str
    emulator: tuple[str, ...]

    @classmethod
    def of(cls, machine: str, cpu: str = "") -> Emulation:
        """For a machine of MACHINES, by a CPU that the emulator knows, its own choice by default.

        The test is skipped where a program is missing.
        """
        compiler, emulator = f"{machine}-linux-gnu-gcc", f"qemu-{machine}"
        for program, package in ((compiler, f"gcc-{machine}-linux-gnu"), (emulator, "qemu-user")):
            if shutil.which(program) is None:
                pytest.skip(f"{program} is absent: install Debian's {package}")
        named = ("-cpu", cpu) if cpu else ()
        return cls(compiler, (emulator, "-L", f"/usr/{machine}-linux-gnu", *named))

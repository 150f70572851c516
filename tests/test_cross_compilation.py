"""Modules for other machines: what links them, what the file then is, and what is said where they cannot run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mrt.backend import compile_model
from mrt.errors import CompilationError
from mrt.runtime import Linker, Module, load_module
from mrt.symbol import GraphBuilder, TensorType, find_operator
from mrt.symbol.quantized_tensor import TensorQuantization

RISCV = {"mtriple": "riscv64-linux-gnu", "features": ["m", "a", "f", "d", "c"]}
TARGETS = {"aarch64": {"mtriple": "aarch64-unknown-linux-gnu"}, "riscv64": RISCV}
NAMES = {"aarch64": "AArch64", "riscv64": "RISC-V"}
"""Of the machines, as readelf writes them."""


def compiled(target: dict[str, Any]) -> Module:
    """A module of one operator."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((2, 3), "int8"))
    graph = builder.graph([builder.apply(find_operator("relu")(), [x], "y")])
    entries = [TensorQuantization(name, (2, 3), "int8", 0.5, 0, -127, 127) for name in ("x", "y")]
    return compile_model(graph, entries[:1], entries[1:], None, "0" * 64, target)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("CC", raising=False)
    return folder


def add(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("linker", "there", "found"),
    [
        (Linker(), ["aarch64-linux-gnu-g++", "g++"], "g++"),
        (Linker("x86_64-linux-gnu"), ["x86_64-linux-gnu-g++", "g++"], "g++"),
        (Linker("aarch64-linux-gnu"), ["g++", "aarch64-linux-gnu-gcc"], "aarch64-linux-gnu-gcc"),
        (Linker("aarch64-linux-gnu"), ["aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++"], "aarch64-linux-gnu-g++"),
        (Linker("aarch64-unknown-linux-gnu"), ["aarch64-linux-gnu-g++"], "aarch64-linux-gnu-g++"),
        (Linker("riscv64-linux-gnu", "zig"), ["riscv64-linux-gnu-g++", "zig"], "zig"),
        (Linker(given="my++"), ["g++", "my++"], "my++"),
    ],
)
def test_the_linker_is_the_one_of_the_target(
    programs: Path, monkeypatch: pytest.MonkeyPatch, linker: Linker, there: list[str], found: str
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    add(programs, *there)
    assert linker.command() == str(programs / found)


def test_a_linker_that_is_not_there_is_named_before_anything_is_compiled(programs: Path) -> None:
    add(programs, "g++")
    for target, said in (
        (TARGETS["aarch64"], "aarch64-unknown-linux-gnu-g++, .* aarch64-linux-gnu-g++, .* key linker"),
        ({**TARGETS["aarch64"], "linker": "lld++"}, "linker is lld++; no such program"),
    ):
        with pytest.raises(CompilationError, match=said.replace("++", r"\+\+")) as raised:
            compiled(target)
        assert "\n" not in str(raised.value)


def test_what_another_linker_says_is_told(tmp_path: Path) -> None:
    """That of this machine does not take objects of others."""
    own = shutil.which("g++")
    if own is None:
        pytest.skip("g++ is absent")
    target = {"mtriple": "aarch64-linux-gnu", "linker": own}
    with pytest.raises(CompilationError, match=r"cannot be linked by \S*g\+\+: .*part0\.o") as raised:
        compiled(target).save(tmp_path / "model.so")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("machine", TARGETS)
def test_a_saved_module_is_for_its_machine(machine: str, tmp_path: Path) -> None:
    if shutil.which(f"{machine}-linux-gnu-g++") is None:
        pytest.skip(f"{machine}-linux-gnu-g++ is absent: install Debian's g++-{machine}-linux-gnu")
    module, path = compiled(TARGETS[machine]), tmp_path / "model.so"
    module.save(path)
    command = [f"{machine}-linux-gnu-readelf", "--file-header", path]
    header = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (stated,) = [line.split(":")[1].strip() for line in header.splitlines() if line.strip().startswith("Machine:")]
    assert stated == NAMES[machine]
    for use in (lambda: load_module(path), lambda: run(module)):
        with pytest.raises(
            CompilationError, match="compiled for (aarch64|riscv), this machine is x86_64.*target='native'"
        ) as raised:
            use()
        assert "\n" not in str(raised.value)


def run(module: Module) -> object:
    return module.run_integer(np.zeros((2, 3), np.int8))


def test_a_module_of_this_machine_runs_by_a_linker_that_is_named(tmp_path: Path) -> None:
    own = shutil.which("g++")
    if own is None:
        pytest.skip("g++ is absent")
    module = compiled({"linker": "g++"})
    module.save(tmp_path / "model.so")
    values = np.array([[-5, 0, 7], [127, -127, 1]], np.int8)
    for each in (module, load_module(tmp_path / "model.so")):
        assert np.asarray(each.run_integer(values)).tolist() == [[0, 0, 7], [127, 0, 1]]

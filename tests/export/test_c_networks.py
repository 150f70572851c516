"""Whole networks as C programs: the integers that the certificate is about, by every optimization, without an FPU."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from c_programs import SANITIZED, STRICT, Programs, compile_c, compiles, in_c, write
from corners import ends_of

from mrt.model import QuantizedModel
from mrt.symbol import Array, GraphBuilder, TensorType, find_operator
from mrt.symbol.quantized_tensor import TensorQuantization
from tests.emulation import MACHINES, Emulation

Digits = Callable[[str], tuple[QuantizedModel, Array, Array]]
LEVELS = ("-O0", "-O1", "-O2", "-O3", "-Os")
WITHOUT_FPU = ("-O2", "-ffreestanding", "-mgeneral-regs-only")
"""The compiler then refuses whatever needs a register of floats or vectors."""
FLOAT_CODE = re.compile(r"%[xyz]?mm\d|%st\b|\t(f[a-z]+|v?cvt\w+|[su]cvtf)\b|\bv\d+\.\d*[bhsd]\b", re.MULTILINE)
"""Registers of floats and vectors, and instructions of floats, of x86 and ARM as objdump writes them."""


@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
def test_digits(quantizer: str, tmp_path: Path, digits: Digits) -> None:
    """Every test sample, by a program that stops at what C does not define."""
    model, x, labels = digits(quantizer)
    programs = Programs.of([(model.graph, model.inputs)], tmp_path, *SANITIZED)
    found = np.concatenate([y for (y,) in programs.run(0, [model.quantize_inputs(sample[None]) for sample in x])])
    expected = model.rebatched(len(x)).graph.evaluate(model.quantize_inputs(x))[0]
    assert (found == expected).all()
    assert np.mean(found.argmax(axis=1) == labels) > 0.97


@pytest.mark.parametrize("machine", MACHINES)
def test_digits_on_other_machines(machine: str, tmp_path: Path, digits: Digits) -> None:
    """By their own compiler and an emulator; test samples, and all inputs at the ends of their range."""
    model, x, _ = digits("affine")
    programs = Programs.of([(model.graph, model.inputs)], tmp_path, "-O2", machine=Emulation.of(machine))
    (entry,) = model.inputs
    ends = [{entry.name: np.full(entry.shape, end, entry.dtype)} for end in (entry.lo, entry.hi)]
    programs.assert_same(0, [*(model.quantize_inputs(sample[None]) for sample in x[:100]), *ends])


def disassembled(path: Path) -> str:
    if shutil.which("objdump") is None:
        pytest.skip("objdump is absent: install binutils")
    command = ["objdump", "--disassemble", "--no-show-raw-insn", path]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_no_instruction_is_of_floats(tmp_path: Path, digits: Digits) -> None:
    if not compiles("int f(void) { return 0; }", tmp_path, *WITHOUT_FPU):
        pytest.skip("this compiler has no -mgeneral-regs-only")
    model, _, _ = digits("affine")
    (file,) = write(in_c(model.graph, model.inputs), tmp_path)
    compile_c(*STRICT, *WITHOUT_FPU, "-c", file, "-o", tmp_path / "model.o")
    code = disassembled(tmp_path / "model.o")
    assert "<model_run>:" in code and "mul" in code
    assert FLOAT_CODE.search(code) is None
    floats = tmp_path / "floats.c"
    floats.write_text("float f(float x) { return 3 * x; }\n")
    compile_c("-O2", "-c", floats, "-o", tmp_path / "floats.o")
    assert FLOAT_CODE.search(disassembled(tmp_path / "floats.o")) is not None


def test_nothing_is_needed_of_a_library(tmp_path: Path, digits: Digits) -> None:
    if shutil.which("nm") is None:
        pytest.skip("nm is absent: install binutils")
    model, _, _ = digits("affine")
    (file,) = write(in_c(model.graph, model.inputs), tmp_path)
    for level in LEVELS:
        compile_c(*STRICT, level, "-ffreestanding", "-c", file, "-o", tmp_path / "model.o")
        done = subprocess.run(["nm", "-u", tmp_path / "model.o"], capture_output=True, text=True, check=True)
        # Freestanding too, GCC may make a loop a call of one of these.
        assert set(done.stdout.split()) - {"U"} <= {"memcpy", "memmove", "memset"}


@pytest.mark.parametrize(
    "command",
    [
        ["clang"],
        ["clang", "--target=armv7m-none-eabi", "-mfloat-abi=soft"],
        ["clang", "--target=riscv32-none-elf", "-march=rv32im", "-mabi=ilp32"],
        ["arm-none-eabi-gcc", "-mcpu=cortex-m0", "-mthumb"],
        ["aarch64-linux-gnu-gcc", "-mgeneral-regs-only"],
        ["riscv64-unknown-elf-gcc", "-march=rv32im", "-mabi=ilp32"],
    ],
    ids=" ".join,
)
def test_compilers_of_chips(command: list[str], tmp_path: Path, digits: Digits) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is absent")
    model, _, _ = digits("affine")
    (file,) = write(in_c(model.graph, model.inputs), tmp_path)
    arguments = [*command, *STRICT, "-O2", "-ffreestanding", "-c", str(file), "-o", str(tmp_path / "model.o")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("level", LEVELS)
def test_every_optimization(level: str, tmp_path: Path) -> None:
    """The heart of two softmaxes: GCC 12 at -O2 loses the calls of its table if it may specialize it for its places."""
    rows, low = 99, 254
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, rows, rows), "int8"))
    sums = []
    for power in (1, 2):
        table = np.arange(low + 1, dtype=np.int32) ** power
        moved = builder.apply(find_operator("transpose")(axes=(0, 2, 1)), [x])
        most = builder.apply(find_operator("max")(axis=(2,), keepdims=True), [moved])
        below = builder.apply(find_operator("broadcast_sub")(), [moved, most])
        held = builder.apply(find_operator("clip")(a_min=-float(low), a_max=0.0), [below])
        place = builder.apply(find_operator("Cast")(dtype="int16"), [held])
        looked_up = builder.apply(find_operator("table_lookup")(offset=low), [place, builder.parameter("table", table)])
        sums.append(builder.apply(find_operator("sum")(axis=(2,), keepdims=True), [looked_up]))
    inputs = [TensorQuantization("x", x.shape, "int8", 1.0, 0, -128, 127)]
    values = np.random.default_rng(0).integers(-128, 128, x.shape).astype(np.int8)
    programs = Programs.of([(builder.graph(sums), inputs)], tmp_path, level)
    (found,) = programs.run(0, [{"x": values}])
    columns = values[0].astype(int).T.tolist()
    for power, array in zip((1, 2), found, strict=True):
        expected = [sum(max(low + v - max(c), 0) ** power for v in c) for c in columns]
        assert array.reshape(-1).tolist() == expected


NETWORKS = [
    ("kws_dscnn", 8),
    ("kws_dscnn", 12),
    *(
        pytest.param(*case, marks=pytest.mark.exhaustive)
        for case in [("mlperf_resnet8_cifar10", 12), ("kwt1_speechcommands12", 8)]
    ),
]
"""By how many bits."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "bits"), NETWORKS)
def test_networks(
    name: str,
    bits: int,
    tmp_path: Path,
    network: Callable[[str, int], tuple[QuantizedModel, list[dict[str, Array]]]],
) -> None:
    """An ordinary input, and those at the ends of their ranges."""
    model, ordinary = network(name, bits)
    (entry,) = model.inputs
    for flags in (SANITIZED, ("-O2",)):
        Programs.of([(model.graph, model.inputs)], tmp_path, *flags).assert_same(0, [ordinary[0], *ends_of(entry)])

"""AVX-VNNI: bytes and words are multiplied by its instructions, and what they compute is exact.

The kernels are those for a CPU that has them. AVX512-VNNI has the same instructions of 256 bits in another encoding, so
that a machine with these runs the very same functions; for others functions in C stand in.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import tvm
from compiled import assert_same_values
from layers import TARGETS, Layers
from stand_ins import standing_in
from tvm.target import codegen

from mrt.backend.build import compile_executable
from mrt.backend.lowering.module import ModuleBuilder
from mrt.backend.machine import Machine
from mrt.runtime import virtual_machine

MACHINE = Machine.of({**TARGETS["alderlake"], "threads": 1})
ENDS = {"uint8": (0, 255), "int8": (-128, 127), "int16": (-(2**15), 2**15 - 1)}


@cache
def layers() -> Layers:
    """Data of every width at the ends of its range: a window, one for each channel, a product of matrices."""
    made = Layers()
    for dtype, (lo, hi) in ENDS.items():
        given = made.input(made.random.choice([lo, lo + 1, hi], (1, 20, 6, 6)).astype(dtype))
        data = made.hidden("clip", given, a_min=float(lo), a_max=float(hi))
        made.add("relu", made.convolution(data, 18, (3, 3), stride=(1, 2)))
        made.add("relu", made.convolution(data, 20, (3, 3), num_group=20))
        weight = made.parameter_of((9, 720), "int8", -128, 127)
        made.finish(made.hidden("FullyConnected", data, weight, num_hidden=9, no_bias=True))
    return made


@cache
def windows_of_bytes() -> Layers:
    """Those that Winograd's algorithm multiplies as words."""
    made = Layers()
    for dtype in ("uint8", "int8"):
        given = made.input(made.random.choice([*ENDS[dtype], 1], (1, 64, 8, 9)).astype(dtype))
        made.add("relu", made.convolution(given, 64, (3, 3), pad=(1, 1)))
    return made


BOTH = pytest.mark.parametrize(
    ("layers", "instructions"),
    [(layers, {"pdpbusd", "pdpwssd"}), (windows_of_bytes, {"pdpwssd", "pmulld"})],
    ids=["layers", "windows of bytes"],
)
"""pmulld: of results by the inverse of 9."""


@BOTH
def test_code_for_a_cpu_that_has_it(layers: Callable[[], Layers], instructions: set[str]) -> None:
    module_builder = ModuleBuilder(MACHINE)
    module_builder.add(layers().graph(), "main")
    kernels = compile_executable(module_builder.module(), MACHINE).kernels
    code = "".join(module.inspect_source("asm") for module in kernels)
    multiplying = set(re.findall(r"^\s+(?:\{vex\}\s+)?v(pdpbusd|pdpwssd|pmaddwd|pmulld)\s", code, re.MULTILINE))
    assert multiplying == instructions
    assert "%zmm" not in code


@BOTH
def test_the_same_functions_are_exact(layers: Callable[[], Layers], instructions: set[str]) -> None:
    here = Machine.of({"threads": 1}).target
    has_them = all(codegen.target_has_features(feature, here) for feature in ("avx512vnni", "avx512vl"))
    graph, machine = layers().graph(), replace(MACHINE, target=here) if has_them else MACHINE
    module_builder = ModuleBuilder(machine)
    module_builder.add(graph, "main")
    with standing_in(machine):
        run = virtual_machine(compile_executable(module_builder.module(), machine))["main"]
    found = run(*(tvm.runtime.tensor(layers().feeds[symbol.name]) for symbol in graph.inputs))
    assert_same_values(graph, [each.numpy() for each in found], graph.evaluate(layers().feeds))

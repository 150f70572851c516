"""AMX: every tiling gives the same integers, and who gets no tile registers is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from compiled import Bundle

from mrt.backend import TvmRunner
from mrt.backend.build import compile_executable
from mrt.backend.kernels.x86.amx.tiles import TileTiling
from mrt.backend.lowering.module import ModuleBuilder
from mrt.backend.machine import Machine
from mrt.backend.schedule.tilings import by_rule
from mrt.runtime import virtual_machine

TARGET = {"kind": "llvm", "mcpu": "sapphirerapids"}
LAYERS: list[tuple[int, tuple[int, int], dict[str, Any]]] = [
    (64, (1, 1), {}),
    (32, (3, 2), {"stride": (2, 1)}),
    (48, (3, 3), {"dilate": (1, 2)}),
    (20, (6, 7), {}),
    (96, (3, 3), {"num_group": 2}),
    (96, (3, 3), {"num_group": 3}),
    (72, (1, 1), {"num_group": 3}),
]
"""Output channels, kernel and attributes of convolutions of data of 48 x 6 x 10, by weights of a byte."""


def has_tiles() -> bool:
    flags = Path("/proc/cpuinfo")
    return flags.exists() and "amx_int8" in flags.read_text("ascii", errors="replace") and Machine.of().has_tiles


def layers() -> Bundle:
    bundle = Bundle()
    data = bundle.hidden("clip", bundle.input(bundle.integers((2, 48, 6, 10), "uint8")), a_min=0.0, a_max=255.0)
    for filters, kernel, attributes in LAYERS:
        inputs = 48 // attributes.get("num_group", 1)
        weight = bundle.parameter(bundle.integers((filters, inputs, *kernel), lo=-127))
        bundle.add("Convolution", data, weight, kernel=kernel, num_filter=filters, no_bias=True, **attributes)
    wide = bundle.parameter(bundle.integers((64, 48, 1, 1), "int16", -8000, 8000))
    bundle.add("Convolution", data, wide, kernel=(1, 1), num_filter=64, no_bias=True)
    return bundle


class Picker:
    """Chooses the tiling of a number among those that are offered, and keeps how many there were."""

    def __init__(self, number: int) -> None:
        self._number, self.offered = number, 0

    def __call__(self, function: Any, scheduled: Any) -> Any:
        def choose(tilings: Any) -> Any:
            found = list(tilings)
            self.offered = max(self.offered, len(found))
            return found[self._number % len(found)]

        return scheduled(choose)


def test_sums_of_which_few_are_read() -> None:
    """What is held to 0 and below is 0 behind a relu, whatever the sums are."""
    bundle = Bundle()
    data = bundle.hidden("clip", bundle.input(bundle.integers((1, 48, 6, 10), "uint8")), a_min=0.0, a_max=255.0)
    weight = bundle.parameter(bundle.integers((32, 48, 1, 1), lo=-127))
    sums = bundle.hidden("Convolution", data, weight, kernel=(1, 1), num_filter=32, no_bias=True)
    low = bundle.hidden("clip", sums, a_min=-100.0, a_max=0.0)
    bundle.add("relu", low)
    bundle.check(runner=TvmRunner(TARGET))


@pytest.mark.usefixtures("tiles")
def test_every_tiling_gives_the_same_integers() -> None:
    bundle, machine = layers(), Machine.of(TARGET)
    graph, expected, number, picker = bundle.graph(), None, 0, Picker(0)
    expected = graph.evaluate(bundle.feeds)
    while number <= picker.offered:
        picker = Picker(number)
        module_builder = ModuleBuilder(machine, picker)
        module_builder.add(graph, "main")
        run = virtual_machine(compile_executable(module_builder.module(), machine))["main"]
        found = run(*(tvm.runtime.tensor(bundle.feeds[symbol.name]) for symbol in graph.inputs))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one.numpy(), other)
        number += 1 + picker.offered // 4
    assert picker.offered > 12


@pytest.mark.parametrize(
    ("filters", "groups", "most"), [(96, 2, 3), (96, 3, 2), (192, 2, 6), (120, 5, 1), (96, 4, 3), (96, 1, 6)]
)
def test_blocks_that_are_multiplied_by_the_same_data_are_of_one_group(filters: int, groups: int, most: int) -> None:
    """Of 48, 32 and 96 channels; of 24, of which two groups are one, with a shorter last one or without."""
    bundle = Bundle()
    data = bundle.hidden("clip", bundle.input(bundle.integers((1, filters, 6, 10), "uint8")), a_min=0.0, a_max=255.0)
    weight = bundle.parameter(bundle.integers((filters, filters // groups, 3, 3), lo=-127))
    attributes = {"kernel": (3, 3), "num_filter": filters, "num_group": groups, "no_bias": True}
    bundle.add("Convolution", data, weight, **attributes)
    offered: list[TileTiling] = []

    def scheduler(function: Any, scheduled: Any) -> Any:
        def choose(tilings: Any) -> Any:
            offered.extend(each for each in tilings if isinstance(each, TileTiling))
            return by_rule(tilings)

        return scheduled(choose)

    ModuleBuilder(Machine.of(TARGET), scheduler).add(bundle.graph(), "main")
    assert offered and max(each.blocks for each in offered) == most
    assert all(most % each.blocks == 0 for each in offered)


@pytest.mark.parametrize(("features", "instruction"), [((), "tdpbusd"), (("-amx-int8",), "vpdpbusd")])
def test_the_instruction_follows_the_target(features: tuple[str, ...], instruction: str) -> None:
    module_builder = ModuleBuilder(machine := Machine.of({**TARGET, "features": features}))
    module_builder.add(layers().graph(), "main")
    kernels = compile_executable(module_builder.module(), machine).kernels
    code = "".join(module.inspect_source("asm") for module in kernels)
    assert instruction in code
    assert ("tdpbusd" in code) is (not features)


@pytest.mark.skipif(not has_tiles(), reason="this machine gives no tile registers to refuse")
def test_a_process_without_tile_registers_is_told() -> None:
    """Its own code does without; code that was made to use them fails with a reason instead of a signal."""
    script = """
import sys
sys.path[:0] = sys.argv[1:]
from peers import refuse_amx
refuse_amx()
from test_amx_tiles import TARGET, layers
from mrt.backend import TvmRunner
from mrt.backend.machine import Machine
print(Machine.of().has_tiles)
bundle = layers()
TvmRunner(TARGET).prepare(bundle.graph())(bundle.feeds)
"""
    here = Path(__file__)
    folders = here.parents[3] / "benchmarks", here.parents[1], here.parent, here.parents[3]
    given = [sys.executable, "-c", script, *map(str, folders)]
    done = subprocess.run(given, capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "False", done.stderr
    assert done.returncode == 1
    assert "AMX), which this process does not get; compile it with the feature -amx-int8" in done.stderr

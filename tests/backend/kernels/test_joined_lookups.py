"""Look-ups of the vectors of a tile by AVX2: joined, they give the entries of single ones, by fewer instructions."""

from __future__ import annotations

import pytest
from layers import TARGETS, Layers, kernel_texts, runnable

from mrt.backend import TvmRunner
from mrt.backend.build import compile_executable
from mrt.backend.lowering.module import ModuleBuilder
from mrt.backend.machine import Machine
from mrt.symbol import Symbol

CPU = "x86-64-v3"
ONE_CORE = Machine.of({**TARGETS[CPU], "threads": 1})
LIMITS = {"int8": [(-127, 127), (-128, 127), (-100, 90)], "uint8": [(0, 255), (3, 250)]}
"""What places are clipped to, by the dtype that holds them: its own limits, and others."""


def looked_up(layers: Layers, sums: Symbol, limits: tuple[int, int], dtype: str, entries: str = "int8") -> Symbol:
    """Sums, shifted so that some are beyond the limits of 16 bits, clipped to places of a table."""
    shifted = layers.hidden("right_shift", sums, layers.parameter_of((1, sums.shape[1], 1, 1), "int8", 0, 9))
    clipped = layers.hidden("clip", shifted, a_min=float(limits[0]), a_max=float(limits[1]))
    table = layers.parameter_of((256,), entries, -100, 100)
    places = layers.hidden("Cast", clipped, dtype=dtype)
    return layers.hidden("table_lookup", places, table, offset=128 if dtype == "int8" else 0)


def drawn(layers: Layers, channels: int, size: int, samples: int = 2) -> Symbol:
    return layers.input(layers.integers((samples, channels, size, size), "int8"))


def check(layers: Layers, threads: int = 1) -> None:
    assert any('"look_up"' in text for text in kernel_texts(layers.graph(), CPU))
    if CPU not in runnable():
        pytest.skip(f"this machine does not run code for {CPU}")
    layers.check(runner=TvmRunner({"mcpu": CPU, "threads": threads}))


PLACES = [(dtype, each) for dtype, all_of in LIMITS.items() for each in all_of]


@pytest.mark.parametrize(("dtype", "limits"), PLACES)
def test_places_between_any_limits(dtype: str, limits: tuple[int, int]) -> None:
    """Of sums of one row, of lines, of windows, by depth and by Winograd's algorithm: two of these by each limits."""
    layers, turn = Layers(), PLACES.index((dtype, limits))
    for channels, size, filters, window in [
        (64, 8, 64, {"kernel": (1, 1)}),
        (24, 7, 48, {"kernel": (3, 3), "stride": (2, 2)}),
        (48, 9, 48, {"kernel": (3, 3), "num_group": 48, "pad": (1, 1)}),
        (32, 8, 32, {"kernel": (3, 3), "pad": (1, 1)}),
    ][turn % 2 :: 2]:
        sums = layers.convolution(drawn(layers, channels, size), filters, **window)
        layers.add("relu", looked_up(layers, sums, limits, dtype))
    check(layers)


@pytest.mark.parametrize("filters", [8, 16, 24, 40, 56, 72, 184])
def test_tiles_of_any_number_of_vectors(filters: int) -> None:
    """Also of such that fill no vector of places, and that leave some over."""
    layers = Layers()
    for size in (3, 5, 6):
        sums = layers.convolution(drawn(layers, 32, size), filters, (1, 1))
        layers.add("relu", looked_up(layers, sums, (-127, 127), "int8"))
    check(layers)


def test_jammed_tiles() -> None:
    """Of rows of 7 and of 17 positions, which no tile divides: neighbours look up together, two vectors at a time, and
    one that is left over alone. A vector is kept, and later stored."""
    layers = Layers()
    for channels, size in ((64, 7), (24, 17)):
        sums = layers.convolution(drawn(layers, channels, size, samples=1), 128, (1, 1))
        layers.add("relu", looked_up(layers, sums, (-127, 127), "int8"))
    texts = [text for text in kernel_texts(layers.graph(), CPU) if '"look_up"' in text]
    assert len(texts) == 2 and all(text.count('"vector"') == 2 * (2 * text.count('"look_up"') - 1) for text in texts)
    check(layers)


@pytest.mark.parametrize("entries", ["int8", "uint8", "int16"])
def test_entries_of_bytes_and_of_words(entries: str) -> None:
    layers = Layers()
    sums = layers.convolution(drawn(layers, 32, 6), 48, (1, 1))
    layers.add("relu", looked_up(layers, sums, (-127, 127), "int8", entries))
    check(layers)


def test_what_else_is_made_of_the_sums() -> None:
    """Entries for two readers, entries that are places of another table, and what is not looked up."""
    layers = Layers()
    sums = layers.convolution(drawn(layers, 32, 6), 48, (1, 1))
    found = looked_up(layers, sums, (-127, 127), "int8")
    layers.finish(found)
    layers.finish(layers.requantized(layers.hidden("elemwise_add", found, layers.requantized(sums, "int8")), "int8"))
    layers.finish(layers.requantized(sums))
    layers.finish(looked_up(layers, layers.hidden("Cast", found, dtype="int32"), (-128, 127), "int8"))
    check(layers, threads=2)


def test_full_vectors_are_looked_up() -> None:
    """Rows of a table are picked from by 256 bits at a time; nothing takes single places out of a vector."""
    layers = Layers()
    data = layers.input(layers.integers((1, 64, 8, 8), "int8"))
    layers.finish(looked_up(layers, layers.convolution(data, 64, (1, 1)), (-127, 127), "int8"))
    builder = ModuleBuilder(ONE_CORE)
    builder.add(layers.graph(), "main")
    (kernel,) = (
        each
        for each in compile_executable(builder.module(), ONE_CORE).kernels
        if "vpmaddwd" in each.inspect_source("asm")
    )
    lines = [line for line in kernel.inspect_source("asm").splitlines() if "vpshufb" in line]
    assert lines and all("ymm" in line for line in lines)

"""Slices that are read where they lie: every family of readers, and why what is copied is."""

from __future__ import annotations

import numpy as np
import pytest
from layers import Layers, runnable

from mrt.backend import TvmRunner
from mrt.backend.explain import explain
from mrt.backend.operators.interleave import Interleave
from mrt.symbol import Interval, Symbol


def cut(layers: Layers, data: Symbol, axis: int, begin: int, end: int) -> Symbol:
    return layers.hidden("slice_axis", data, axis=axis, begin=begin, end=end)


def stem(layers: Layers, channels: int, dtype: str, size: tuple[int, int] = (9, 8), batch: int = 3) -> Symbol:
    """A tensor that is computed, channels last in memory."""
    given = layers.input(layers.integers((batch, 5, *size), "int16", -200, 200))
    return layers.requantized(layers.convolution(layers.requantized(given), channels, (1, 1)), dtype)


def read_by_all(layers: Layers, data: Symbol, bordered: bool = True) -> None:
    """One reader of each family, and one that several share; bordered: also those that want a border around it."""
    read_by_windows(layers, data, bordered)
    read_by_others(layers, data)


def read_by_windows(layers: Layers, data: Symbol, bordered: bool = True) -> None:
    channels = data.shape[1]
    layers.finish(layers.convolution(data, 20, (1, 1)))
    layers.finish(layers.convolution(data, 16, (1, 1), stride=(2, 3)))
    if bordered:
        layers.finish(layers.convolution(layers.padded(data, 1, 0, 1, 1), 16, (3, 3)))
        layers.finish(layers.convolution(data, channels, (3, 3), pad=(1, 1), num_group=channels))
    layers.finish(layers.convolution(data, 32, (2, 3)))
    layers.finish(layers.convolution(data, channels, (3, 3), num_group=channels))


def read_by_others(layers: Layers, data: Symbol) -> None:
    layers.add("Pooling", data, kernel=(2, 3), stride=(2, 1), pool_type="max")
    layers.add("Pooling", data, global_pool=True, kernel=(1, 1), pool_type="sum")
    layers.add("elemwise_add", layers.hidden("Cast", data, dtype="int32"), layers.hidden("relu", data))
    other = layers.requantized(layers.convolution(data, 16, (1, 1)), data.dtype)
    layers.finish(layers.convolution(layers.hidden("Concat", other, data, dim=1), 16, (1, 1)))
    flat = layers.hidden("Flatten", data)
    weight = layers.parameter_of((7, flat.shape[1]), "int8", -127, 127)
    layers.add("FullyConnected", flat, weight, num_hidden=7, no_bias=True)


def copies(layers: Layers) -> list[str]:
    """Why slices are copied, of those that are."""
    return [call.ends for call in explain(layers.graph(), []).calls if call.operators[0].startswith("slice")]


SLICES = [(48, 1, 16, 32), (64, 1, 5, 28), (35, 1, 16, 35), (24, 2, 1, 7), (19, 3, 2, 7), (20, 0, 1, 2)]
"""Channels, an axis, and what of it is read."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("cpu", "dtype", "channels", "axis", "begin", "end"),
    [
        (*kind, *taken)
        for turn, kind in enumerate((("native", "uint8"), ("x86-64-v3", "int8"), ("cascadelake", "int8")))
        for taken in SLICES[turn % 2 :: 2]
    ],
)
def test_every_reader_of_a_slice(cpu: str, dtype: str, channels: int, axis: int, begin: int, end: int) -> None:
    """Of channels at multiples of vectors and others, of rows, of columns and of samples."""
    if cpu not in ("native", *runnable()):
        pytest.skip(f"this machine does not run code for {cpu}")
    layers = Layers()
    read_by_all(layers, cut(layers, stem(layers, channels, dtype), axis, begin, end), bordered=axis < 2)
    assert copies(layers) == []
    layers.check(runner=TvmRunner() if cpu == "native" else TvmRunner({"kind": "llvm", "mcpu": cpu}))


def test_slices_of_slices_of_parts_and_of_outputs() -> None:
    """Cut twice along one axis and along two, of a part of a Concat and of a Concat, and of an output."""
    layers = Layers()
    data = stem(layers, 64, "int8")
    layers.outputs.append(data)
    twice = cut(layers, cut(layers, data, 1, 8, 56), 1, 3, 20)
    read_by_windows(layers, twice)
    corner = layers.hidden("slice", data, begin=(1, 16, 2, 1), end=(3, 35, 8, 7))
    read_by_others(layers, corner)
    parts = [layers.requantized(layers.convolution(data, 32, (1, 1))) for _ in range(2)]
    joined = layers.hidden("Concat", *parts, dim=1)
    layers.finish(layers.convolution(joined, 16, (1, 1)))
    layers.finish(layers.convolution(cut(layers, parts[1], 1, 5, 20), 16, (3, 3), pad=(1, 1)))
    layers.finish(layers.convolution(cut(layers, joined, 1, 24, 40), 16, (1, 1)))
    assert copies(layers) == []
    given = cut(layers, data, 1, 16, 48)
    layers.outputs.append(given)
    layers.finish(layers.convolution(given, 16, (3, 3), pad=(1, 1)))
    assert copies(layers) == ["slice_axis copies, since it is an output of the graph"]
    layers.check()


@pytest.mark.parametrize("nested", [0, 1])
def test_concatenations_in_each_other(nested: int) -> None:
    """All parts are written in the memory of the outermost one, which some of what makes them reads, too."""
    layers = Layers()
    data = stem(layers, 16, "uint8")
    parts = [layers.requantized(layers.convolution(data, 16, (1, 1))) for _ in range(3)]
    inner = layers.hidden("Concat", *parts[:2], dim=1)
    deeper = layers.requantized(
        layers.convolution(layers.requantized(layers.convolution(inner, 16, (1, 1))), 16, (1, 1))
    )
    outer = layers.hidden("Concat", *((inner, parts[2], deeper) if nested else (parts[2], inner, deeper)), dim=1)
    layers.finish(layers.convolution(outer, 16, (3, 3), pad=(1, 1)))
    layers.finish(layers.convolution(inner, 16, (1, 1)))
    assert not any("Concat" in call.operators for call in explain(layers.graph(), []).calls)
    layers.check()


def test_a_part_that_is_made_of_another_is_not_written_beside_it() -> None:
    """Neither of a part, nor of a part of one, nor of a slice of it."""
    layers = Layers()
    data = stem(layers, 16, "uint8")
    parts = [layers.requantized(layers.convolution(data, 32, (1, 1))) for _ in range(2)]
    inner = layers.hidden("Concat", *parts, dim=1)
    for source in (parts[1], inner, cut(layers, parts[0], 1, 16, 32)):
        made = layers.requantized(layers.convolution(source, 16, (1, 1)))
        layers.finish(layers.convolution(layers.hidden("Concat", inner, made, dim=1), 16, (1, 1)))
    told = [call.ends for call in explain(layers.graph(), []).calls if call.operators == ("Concat",)]
    assert any("is made of another part" in why for why in told)
    layers.check()


def test_why_a_slice_is_copied_is_told() -> None:
    def told(axis: int, begin: int, end: int, **attributes: tuple[int, int]) -> list[str]:
        layers = Layers()
        part = cut(layers, stem(layers, 48, "uint8"), axis, begin, end)
        layers.finish(layers.convolution(part, 16, (3, 3), **attributes))
        layers.check()
        return copies(layers)

    assert told(1, 0, 20) == told(2, 1, 7) == []
    assert "memory ends before" in told(1, 35, 40)[0]
    assert "a border where its data goes on" in told(2, 1, 7, pad=(1, 1))[0]


def shuffled(layers: Layers, data: Symbol, groups: int) -> Symbol:
    """The channels of all groups in turns, as networks write it."""
    batch, channels, *spatial = data.shape
    apart = layers.hidden("Reshape", data, shape=(batch, groups, channels // groups, *spatial))
    moved = layers.hidden("transpose", apart, axes=(0, 2, 1, *range(3, 3 + len(spatial))))
    return layers.hidden("Reshape", moved, shape=(batch, channels, *spatial))


@pytest.mark.parametrize(("cpu", "channels"), [("native", 32), ("native", 116), ("x86-64", 116)])
def test_units_that_split_join_and_shuffle(cpu: str, channels: int) -> None:
    """Those of ShuffleNet: half of the channels goes through convolutions, all are shuffled; nothing else is moved."""
    layers = Layers()
    half = channels // 2
    data = stem(layers, channels, "uint8")
    for _ in range(2):
        kept, right = cut(layers, data, 1, 0, half), cut(layers, data, 1, half, channels)
        made = layers.requantized(layers.convolution(right, half, (1, 1)))
        made = layers.requantized(layers.convolution(made, half, (3, 3), pad=(1, 1), num_group=half))
        data = shuffled(layers, layers.hidden("Concat", kept, made, dim=1), 2)
    layers.finish(layers.convolution(data, 16, (1, 1)))
    moves = {"slice_axis", "Concat", "Reshape", "transpose", "interleave"}
    found = [call.operators for call in explain(layers.graph(), []).calls if moves & set(call.operators)]
    assert found == [("interleave",)] * 2
    layers.check(runner=TvmRunner() if cpu == "native" else TvmRunner({"kind": "llvm", "mcpu": cpu}))


def test_channels_in_turns() -> None:
    """Three groups of one tensor, of a Concat that others read, of parts of other lengths, with rows only; with what is
    done after them; and reshapes that are no shuffle."""
    layers = Layers()
    data = stem(layers, 48, "int8")
    layers.finish(layers.convolution(shuffled(layers, data, 3), 16, (3, 3), pad=(1, 1)))
    layers.add("relu", shuffled(layers, data, 2))
    parts = [layers.requantized(layers.convolution(data, 24, (1, 1)), "int8") for _ in range(2)]
    joined = layers.hidden("Concat", *parts, dim=1)
    layers.finish(layers.convolution(joined, 16, (1, 1)))
    layers.finish(layers.convolution(shuffled(layers, joined, 2), 16, (1, 1)))
    uneven = layers.hidden("Concat", parts[0], cut(layers, parts[1], 1, 0, 12), dim=1)
    layers.finish(layers.convolution(shuffled(layers, uneven, 2), 16, (1, 1)))
    layers.add("relu", shuffled(layers, layers.input(layers.integers((2, 12), "int8")), 4))
    apart = layers.hidden("Reshape", data, shape=(3, 8, 6, 9, 8))
    moved = layers.hidden("transpose", apart, axes=(0, 2, 1, 4, 3))
    layers.add("Reshape", moved, shape=(3, 48, 8, 9))
    layers.add("relu", moved)
    layers.check()


@pytest.mark.parametrize("groups", [1, 6272, 3136])
def test_tokens_are_no_groups(groups: int) -> None:
    """Of attention with one head, whose reshapes move nothing, and of so many that no kernel takes them apart."""
    layers = Layers()
    data = stem(layers, 6272, "int8", (1, 2), 1)
    layers.finish(layers.convolution(shuffled(layers, data, groups), 16, (1, 1)))
    assert not [call for call in explain(layers.graph(), []).calls if "interleave" in call.operators]
    layers.check()


def test_bounds_of_channels_in_turns() -> None:
    """By channel where a part has them by channel; one for all where no part has."""
    low = [np.arange(3 * place, 3 * place + 3).reshape(1, 3, 1) for place in range(2)]
    parts = [Interval(lo, lo + place, (2, 3, 5)) for place, lo in enumerate(low)]
    found = Interleave().bounds(*parts)
    assert found.lo.ravel().tolist() == [0, 3, 1, 4, 2, 5]
    assert (found.hi - found.lo).ravel().tolist() == [0, 1] * 3
    assert found.shape == (2, 6, 5)
    alike = Interleave().bounds(Interval.of(-1, 4, (2, 3, 5)), Interval.of(-7, 2, (2, 3, 5)))
    assert (alike.min, alike.max) == (-7, 4)

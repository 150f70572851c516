"""Copies that exchange axes, by tiles that are turned in registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from layers import Layers, softmax_of
from tvm import te, tirx

from mrt.backend.kernels.generic.turn import Turn, turn_of
from mrt.backend.kernels.generic.turned_rows import turned
from mrt.backend.kernels.generic.turned_tiles import TurnedTiles, schedule_turned
from mrt.backend.machine import Machine
from mrt.backend.tir.expressions import bind, constant
from mrt.backend.tir.plans import Plan
from mrt.backend.tir.statements import with_root
from mrt.symbol import Runner, Symbol

Array = Any


def run(function: Any, *arrays: Array) -> None:
    """Runs a PrimFunc, which fills the last array."""
    held = [tvm.runtime.tensor(array) for array in arrays]
    tirx.build(tvm.IRModule({"main": function}), Machine.of().target)["main"](*held)
    arrays[-1][...] = held[-1].numpy()


@pytest.mark.parametrize(("count", "places"), [(4, 4), (8, 2), (16, 4), (16, 8), (16, 16), (32, 16)])
def test_rows_are_turned(count: int, places: int) -> None:
    x = te.placeholder((count, places), "int8")
    function = te.create_prim_func([x, te.compute((places, count), lambda i, j: x[j, i])])
    source, result = function.params
    at = [constant(i, "int32") for i in range(max(count, places))]
    ramps = [tirx.Ramp(at[0], 1, length) for length in (places, count)]
    vectors = turned([tirx.BufferLoad(source, [i, ramps[0]]) for i in at[:count]])
    body = [tirx.BufferStore(result, vector, [i, ramps[1]]) for i, vector in zip(at, vectors, strict=False)]
    given = np.random.default_rng(0).integers(-128, 128, (count, places)).astype(np.int8)
    found = np.zeros((places, count), np.int8)
    run(with_root(function, tirx.SeqStmt(body)), given, found)
    np.testing.assert_array_equal(found, given.T)


def padded(x: Any, *at: Any) -> Any:
    """x^T with rows of 32, of which 29 are not 0."""
    return tirx.if_then_else(at[1] < 29, x[at[1], at[0]], tirx.const(0, "int8"))


def flat(x: Any, at: Any) -> Any:
    """Of positions with 24 channels each, plane by plane."""
    return x[tirx.floormod(at, 35), tirx.floordiv(at, 35)]


def planes(x: Any, *at: Any) -> Any:
    """Positions of lines of 9 with 24 channels each, of planes."""
    return x[at[1], tirx.floordiv(at[0], 9), tirx.floormod(at[0], 9)]


COPIES: dict[str, tuple[tuple[int, ...], tuple[int, ...], Callable[..., Any], tuple[int, int] | None]] = {
    "whole tiles": ((32, 48), (48, 32), lambda x, i, j: x[j, i], (16, 16)),
    "tiles that share elements": ((21, 19), (19, 21), lambda x, i, j: x[j, i], (16, 16)),
    "short rows": ((40, 6), (6, 40), lambda x, i, j: x[j, i], (4, 16)),
    "a short line": ((11, 32), (32, 11), lambda x, i, j: x[j, i], (8, 8)),
    "axes between": ((5, 3, 17, 20), (20, 3, 5, 17), lambda x, i, j, k, n: x[k, j, n, i], (16, 16)),
    "padded rows": ((29, 24), (24, 32), padded, (16, 16)),
    "one axis for both": ((35, 24), (840,), flat, (16, 16)),
    "one axis for lines": ((24, 7, 9), (63, 24), planes, (16, 16)),
    "too short": ((40, 3), (3, 40), lambda x, i, j: x[j, i], None),
    "too narrow": ((7, 40), (40, 7), lambda x, i, j: x[j, i], None),
    "in order": ((32, 48), (32, 48), lambda x, i, j: x[i, j], None),
    "every other element": ((32, 48), (24, 32), lambda x, i, j: x[j, i * 2], None),
    "a moved border": (
        (32, 48),
        (48, 40),
        lambda x, i, j: tirx.if_then_else(j > 7, x[j - 8, i], tirx.const(0, "int8")),
        None,
    ),
    "others behind it": ((32, 32), (32, 40), lambda x, i, j: tirx.if_then_else(j < 24, x[j, i], x[i, j - 24]), None),
    "others before it": ((32, 32), (32, 40), lambda x, i, j: tirx.if_then_else(j < 16, x[i, j], x[j - 16, i]), None),
    "two at once": ((32, 32), (32, 32), lambda x, i, j: x[j, i] + x[j, 31 - i], None),
}
"""The shape of what is read, that of what is written, the element, and the rows and the width of a tile, if any."""


@pytest.mark.parametrize("case", COPIES)
def test_copies(case: str) -> None:
    taken, given, element, tile = COPIES[case]
    source = te.placeholder(taken, "int8", "source")
    function = te.create_prim_func([source, te.compute(given, lambda *at: element(source, *at), name="result")])
    turn = turn_of(function)
    assert (turn and (turn.rows, turn.width)) == tile
    if isinstance(turn, Turn):
        x = np.random.default_rng(0).integers(-128, 128, taken).astype(np.int8)
        expected, found = np.zeros((2, *given), np.int8)
        run(function, x, expected)
        plan = Plan(function)
        schedule_turned(plan, plan.get_sblock("result"), turn)
        run(TurnedTiles().run(plan.mod["main"]).made, x, found)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("dtype", "rows"), [("int8", 16), ("uint8", 16), ("int16", 8), ("int32", 4), ("float32", 4)])
def test_what_is_made_of_elements(dtype: str, rows: int) -> None:
    """Between reading and storing, with another tensor, which is read in the order of what is written."""
    x, other = te.placeholder((45, 24), dtype, "x"), te.placeholder((24, 45), "int32", "other")

    def element(i: Any, j: Any) -> Any:
        value = x[j, i].astype("int32") * other[i, j] + other[i, 0]
        return bind(value, lambda held: tirx.Select(held > 50, tirx.max(held, tirx.const(70, "int32")), tirx.abs(held)))

    function = te.create_prim_func([x, other, te.compute((24, 45), element, name="result")])
    turn = turn_of(function)
    assert turn is not None and turn.rows == rows
    plan = Plan(function)
    schedule_turned(plan, plan.get_sblock("result"), turn)
    random = np.random.default_rng(1)
    arrays = random.integers(0, 100, (45, 24)).astype(dtype), random.integers(-99, 99, (24, 45)).astype(np.int32)
    expected, found = np.zeros((2, 24, 45), np.int32)
    run(function, *arrays, expected)
    run(TurnedTiles().run(plan.mod["main"]).made, *arrays, found)
    np.testing.assert_array_equal(found, expected)


class Moving(Layers):
    def channels_last(self, filters: int, *positions: int) -> Symbol:
        """Bytes that lie channel by channel at each position."""
        data = self.input(self.integers((2, 16, *positions), "int8"))
        return self.requantized(self.convolution(data, filters, (1,) * len(positions)), "int8")


def test_maps_of_layers(runner: Runner, turn: int) -> None:
    """Channels that are rows, whole maps as rows, tokens; normalized, scaled and as they are.

    Maps of every other size on each CPU.
    """
    layers = Moving()
    for positions in [(199,), (7, 7), (5, 18)][turn % 2 :: 2]:
        data = layers.channels_last(40, *positions)
        flat = layers.hidden("Reshape", data, shape=(0, 0, -1))
        layers.finish(softmax_of(layers, flat))
        layers.finish(layers.hidden("Reshape", data, shape=(0, 1, -1)))
        tokens = layers.hidden("transpose", flat, axes=(0, 2, 1))
        heads = layers.hidden("Reshape", tokens, shape=(0, 0, 5, 8))
        layers.finish(layers.hidden("transpose", heads, axes=(0, 2, 3, 1)))
        layers.finish(layers.hidden("transpose", heads, axes=(2, 0, 1, 3)))
    layers.check(runner=runner)

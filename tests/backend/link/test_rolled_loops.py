"""Loops that LLVM leaves as they are: which ones, and that they are there once and give the same."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx

from mrt.backend.link.kernel_compiler import as_module
from mrt.backend.link.rolled_loops import MANY, ONCE, with_rolled_loops
from mrt.backend.machine import Machine
from mrt.backend.memory.alignment import empty
from mrt.backend.memory.border import FEW_RUNS, fill_borders
from mrt.backend.memory.storage import Storage
from mrt.backend.tir.statements import ROLLED, loop_around, plain_block, unrolled, with_root
from mrt.symbol import TensorType

LANES = 16
TURNS = 24


def squared(turns: int, lanes: int, dtype: str = "int32") -> Any:
    """A scheduled function of turns · 4 · lanes elements, whose only loop is over four vectors a turn, or numbers where
    lanes is 1."""
    count = turns * 4 * lanes
    x = te.placeholder((count,), dtype, "x")
    plan = tvm.s_tir.Schedule(te.create_prim_func([x, te.compute((count,), lambda i: x[i] * x[i], "squared")]))
    _, four, lane = plan.split(plan.get_loops(plan.get_sblock("squared"))[0], [turns, 4, lanes])
    plan.unroll(four)
    if lanes > 1:
        plan.vectorize(lane)
    return plan.mod["main"]


def compiled(function: Any) -> Any:
    return as_module({"kernel": function}, tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v4"}))


def stays(function: Any) -> bool:
    return ONCE in with_rolled_loops(function).script()


@pytest.mark.parametrize(
    ("turns", "lanes", "expected"),
    [(MANY, LANES, True), (MANY - 1, LANES, False), (TURNS, LANES, True), (TURNS, 1, False)],
)
def test_loops_of_many_turns_over_vectors_stay(turns: int, lanes: int, expected: bool) -> None:
    assert stays(squared(turns, lanes)) is expected


def test_loops_over_vectors_of_floats_are_left_to_llvm() -> None:
    assert not stays(squared(TURNS, LANES, "float32"))


def test_a_loop_around_another_one_does_not_stay() -> None:
    function = squared(TURNS, LANES)
    outer = tirx.For(tirx.Var("outer", "int32"), 0, 3, tirx.ForKind.SERIAL, function.body.block.body)
    rolled = with_rolled_loops(with_root(function, outer))
    assert rolled.script().count(f'call_extern("void", "{ONCE}")') == 1


def test_a_marked_loop_stays_whatever_it_does() -> None:
    function = squared(TURNS, 1)
    loop = function.body.block.body
    assert stays(with_root(function, loop_around(loop, loop.body, marks={ROLLED: 1})))


def test_a_marked_loop_stays_in_each_turn_of_one_that_is_written_out() -> None:
    function = squared(TURNS, 1)
    loop = loop_around(function.body.block.body, function.body.block.body.body, marks={ROLLED: 1})
    assert stays(with_root(function, unrolled(tirx.Var("turn", "int32"), 2, loop)))


def test_llvm_writes_a_loop_that_stays_once() -> None:
    """What it is, and without the call, which shows that LLVM would unroll this one."""
    function, made = squared(TURNS, LANES), []
    for built in (compiled(function), compiled_without(function)):
        source = built.inspect_source("ll")
        assert f"@{ONCE}" not in source
        made.append(len(re.findall(rf"mul (?:\w+ )*<{LANES} x i32>", source)))
    assert made[0] == 4
    assert made[1] > 4


def compiled_without(function: Any) -> Any:
    """The code of the function whose loop is of an unknown kind to `with_rolled_loops`, since it is not innermost."""
    loop = function.body.block.body
    single = tirx.For(tirx.Var("single", "int32"), 0, 2, tirx.ForKind.SERIAL, loop.body)
    return compiled(with_root(function, loop_around(loop, single)))


@pytest.mark.parametrize("lanes", [LANES, 1])
def test_results_are_the_same(lanes: int) -> None:
    function = squared(TURNS, lanes)
    loop = function.body.block.body
    marked = with_root(function, loop_around(loop, loop.body, marks={ROLLED: 1}))
    module = as_module({"kernel": marked}, Machine.of({"mcpu": "native", "threads": 1}).target)
    x, y = empty((TURNS * 4 * lanes,), np.int32), empty((TURNS * 4 * lanes,), np.int32)
    x[...] = np.random.default_rng(0).integers(-1000, 1000, x.size)
    module["kernel"](tvm_ffi.from_dlpack(x), tvm_ffi.from_dlpack(y))
    np.testing.assert_array_equal(y, x * x)


@pytest.mark.parametrize("rows", [1, FEW_RUNS, FEW_RUNS + 1, 40])
@pytest.mark.parametrize("samples", [1, 3])
def test_borders_are_filled_by_loops_that_stay_where_they_are_many_runs(rows: int, samples: int) -> None:
    """A border of a column is one run of memory in each row of each sample; of a row, one in each sample."""
    storage = Storage.with_inner(TensorType((samples, 16, rows, 5), "int32"), 1)
    storage = replace(storage, before=(0, 0, 1, 1), after=(0, 0, 1, 2), bordered=True)
    memory = tirx.decl_buffer(storage.shape, storage.dtype, "memory")
    nothing = tirx.PrimFunc([memory], plain_block("root", tirx.Evaluate(tirx.const(0, "int32")), []))
    function = fill_borders(nothing, [storage])
    assert stays(function) is (samples * rows > FEW_RUNS)
    module = as_module({"kernel": function}, Machine.of({"mcpu": "native", "threads": 1}).target)
    held = empty(storage.shape, np.int32)
    held[...] = 7
    module["kernel"](tvm_ffi.from_dlpack(held))
    expected = np.zeros(storage.shape, np.int32)
    expected[:, 1 : 1 + rows, 1:6] = 7
    np.testing.assert_array_equal(held, expected)

"""Lowering: a region of the graph as one PrimFunc of loops and arithmetic, scheduled for a scalar core."""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import s_tir, te, tirx
from tvm.ir import prim

from mrt.backend.fusion.regions import Region
from mrt.backend.memory.storage import Storage, View
from mrt.backend.te.registry import find_scalar_compute
from mrt.symbol import Symbol

REDUCTION = int(tirx.IterVar.CommReduce)
"""The kind of a block's axis that is reduced."""
MAX_UNROLLED = 8
"""Turns of an innermost loop up to which it is written out."""


def lower_region(region: Region) -> Any:
    """The PrimFunc of a region's computes, on flat buffers: its inputs in the graph's own layouts, then its output."""
    return _flattened(_scheduled(_prim_func(region)))


def _prim_func(region: Region) -> Any:
    placeholders = [te.placeholder(source.shape, source.dtype, f"input{i}") for i, source in enumerate(region.inputs)]
    values: dict[Symbol, View] = {
        source: View.of(placeholder, Storage.plain(source.type))
        for source, placeholder in zip(region.inputs, placeholders, strict=True)
    }
    for symbol in region.symbols:
        values[symbol] = find_scalar_compute(symbol)(symbol, *(values[source] for source in symbol.inputs))
    output = region.output
    result = te.compute(output.shape, lambda *at: values[output](*at).astype(output.dtype), name="result")
    return te.create_prim_func([*placeholders, result])


def _scheduled(function: Any) -> Any:
    """The PrimFunc for one scalar core: loops over the output's elements in order, each computed as a whole.

    A reduction runs inside of them, into a variable, and what it reads is computed where it is read. One that has
    fewer elements than the output, so that several of these share it, comes before them, into a buffer.
    """
    plan = s_tir.Schedule(function)
    *stages, output = plan.get_child_blocks(plan.get_sblock("root"))
    reductions = [stage for stage in stages if _reduces(plan, stage)]
    for stage in stages:
        if not _reduces(plan, stage):
            plan.compute_inline(stage)
    # A block without axes, of rank 0, has one of its own that no loop goes over.
    loops = zip(plan.get_loops(output), _kinds(plan, output), strict=False)
    elements = [loop for loop, kind in loops if kind != REDUCTION]
    for stage in reversed(reductions):
        if elements and _size(plan, stage) >= _size(plan, output):
            plan.compute_at(stage, elements[-1])
            _unroll_last(plan, plan.get_loops(stage)[len(elements) :])
    return plan.mod["main"]


def _unroll_last(plan: Any, loops: list[Any]) -> None:
    """Unrolls a short innermost loop, such as that over a row of a window: counting would cost as much as its sums."""
    if loops and int(plan.get(loops[-1]).extent) <= MAX_UNROLLED:
        plan.unroll(loops[-1])


def _kinds(plan: Any, block: Any) -> list[int]:
    """The kind of each axis of a block."""
    return [int(axis.iter_type) for axis in plan.get(block).iter_vars]


def _reduces(plan: Any, block: Any) -> bool:
    return REDUCTION in _kinds(plan, block)


def _size(plan: Any, block: Any) -> int:
    """How many elements a block computes."""
    axes = [axis for axis in plan.get(block).iter_vars if int(axis.iter_type) != REDUCTION]
    return math.prod(int(axis.dom.extent) for axis in axes)


def _flattened(function: Any) -> Any:
    """The PrimFunc on flat buffers with loops and arithmetic only; shared index expressions are variables."""
    blocks, plain = s_tir.transform, tirx.transform
    passes = [
        blocks.CanonicalizeLoop(),
        blocks.LowerInitBlock(),
        blocks.PlanAndUpdateBufferAllocationLocation(),
        blocks.ConvertBlocksToOpaque(),
        blocks.CompactBufferAllocation(),
        blocks.LowerMatchBuffer(),
        blocks.StmtSimplify(),
        blocks.LowerOpaqueBlock(),
        plain.FlattenBuffer(),
        plain.NarrowDataType(32),
        plain.UnrollLoop(),
        plain.StmtSimplify(),
        plain.RemoveNoOp(),
        plain.prim_func_pass(_starting_before_loops, opt_level=0),
        blocks.RewriteUnsafeSelect(),
        plain.CommonSubexprElim(),
        blocks.ConvertSSA(),
        plain.LowerIntrin(),
    ]
    target = tvm.target.Target({"kind": "c"})
    module = tvm.IRModule({"main": function.with_attr("target", target)})
    return tvm.transform.Sequential(passes)(module)["main"]


def _starting_before_loops(function: Any, module: Any, context: Any) -> Any:
    """Moves the initial value of each reduction from a test in its innermost loop to before its loops."""
    return function.with_body(_sequence(_started(function.body)))


def _started(statement: Any) -> list[Any]:
    """The statement with what a loop does first in its first turn only moved before the loop."""
    if isinstance(statement, tirx.SeqStmt):
        return [part for each in statement.seq for part in _started(each)]
    if not isinstance(statement, tirx.For):
        return [statement]
    first, *rest = _started(statement.body)
    before = []
    if rest and isinstance(first, tirx.IfThenElse) and first.else_case is None:
        tests = _conjuncts(first.condition)
        others = [test for test in tests if not _is_first_turn(test, statement)]
        if len(others) < len(tests) and not _uses(first.then_case, statement.loop_var):
            before = [tirx.IfThenElse(tirx.all(*others), first.then_case, None)] if others else [first.then_case]
    return [*before, _with_loop_body(statement, _sequence(rest if before else [first, *rest]))]


def _conjuncts(condition: Any) -> list[Any]:
    if isinstance(condition, prim.And):
        return [*_conjuncts(condition.a), *_conjuncts(condition.b)]
    return [condition]


def _is_first_turn(test: Any, loop: Any) -> bool:
    """Whether a condition is true in the first turn of the loop only: `loop variable == first value`."""
    if not isinstance(test, prim.EQ) or not isinstance(test.b, prim.IntImm):
        return False
    return bool(test.a.same_as(loop.loop_var)) and int(test.b) == int(loop.min)


def _uses(statement: Any, variable: Any) -> bool:
    return any(used.same_as(variable) for used in tirx.analysis.undefined_vars(statement))


def _sequence(statements: list[Any]) -> Any:
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)


def _with_loop_body(loop: Any, body: Any) -> Any:
    return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body)

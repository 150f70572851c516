"""Storing what a walk computes where it belongs: into flat memory, or inside of a border that is filled first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import ir, s_tir, tirx

from mrt.backend.memory.storage import Storage, Walk
from mrt.backend.tir.expressions import Expression, constant
from mrt.backend.tir.statements import ROLLED, loop_around, serial, with_root

FEW_RUNS = 8
"""Runs of a border that LLVM may fill one by one, without a loop."""


def move_into_memory(function: Any, walk: Walk, storages: Sequence[Storage]) -> Any:
    """A PrimFunc that is not scheduled, and whose last parameters have the walk's shape, storing into the storages."""
    if all(storage.shape == walk.shape for storage in storages):
        return function
    inputs, results = function.params[: -len(storages)], function.params[-len(storages) :]
    memory = [tirx.decl_buffer(storage.shape, storage.dtype, f"memory{i}") for i, storage in enumerate(storages)]

    def rewritten(statement: Any) -> Any:
        if isinstance(statement, tirx.SeqStmt):
            return tirx.SeqStmt([rewritten(each) for each in statement.seq])
        if isinstance(statement, tirx.For):
            return loop_around(statement, rewritten(statement.body))
        if isinstance(statement, s_tir.SBlockRealize):
            return s_tir.SBlockRealize(statement.iter_values, statement.predicate, stored(statement.block))
        return statement

    def stored(block: Any) -> Any:
        store = block.body
        if not isinstance(store, tirx.BufferStore):
            return block
        for result, held, storage in zip(results, memory, storages, strict=True):
            if store.buffer.same_as(result):
                places = storage.places(walk.logical(store.indices))
                region = tirx.BufferRegion(held, [ir.Range.from_min_extent(place, 1) for place in places])
                body = tirx.BufferStore(held, store.value, places)
                marks = block.annotations
                return s_tir.SBlock(block.iter_vars, block.reads, [region], block.name_hint, body, annotations=marks)
        return block

    return with_root(function, rewritten(function.body.block.body), parameters=[*inputs, *memory])


def fill_borders(function: Any, storages: Sequence[Storage]) -> Any:
    """The scheduled function with loops before its own that fill what these leave: all that is not in the core."""
    fills = []
    for memory, storage in zip(function.params[-len(storages) :], storages, strict=True):
        value = storage.border if storage.type.is_float else int(storage.border) + storage.offset
        boxes = _boxes(storage) if storage.has_border else []
        fills += [_fill(memory, box, constant(value, storage.dtype)) for box in boxes]
    if not fills:
        return function
    return with_root(function, tirx.SeqStmt([*fills, function.body.block.body]))


def _boxes(storage: Storage) -> list[list[tuple[int, int]]]:
    """The border as boxes, a (begin, length) for each axis in memory; they do not overlap."""
    boxes = []
    around = [(0, n) for n in storage.shape]
    start = [storage.before[axis] for axis in storage.order]
    around[-1] = (start[-1], storage.length)
    for axis, (begin, length, whole) in enumerate(zip(start[:-1], storage.core[:-1], storage.shape[:-1], strict=True)):
        for first, count in ((0, begin), (begin + length, whole - begin - length)):
            if count:
                boxes.append([*around[:axis], (first, count), *around[axis + 1 :]])
        around[axis] = (begin, length)
    return boxes


def _fill(memory: Any, box: Sequence[tuple[int, int]], value: Expression) -> Any:
    """Loops over a box, not to be unrolled where they fill many runs of memory."""
    variables = [tirx.Var(f"b{axis}", "int32") for axis in range(len(box))]
    places = [begin + variable for (begin, _), variable in zip(box, variables, strict=True)]
    statement = tirx.BufferStore(memory, value, places)
    lengths = [length for _, length in box]
    runs = _runs(lengths, [int(length) for length in memory.shape])
    for axis in reversed(range(len(box))):
        is_rolled = axis == len(runs) - 1 and math.prod(runs) > FEW_RUNS
        statement = serial(variables[axis], lengths[axis], statement, ROLLED if is_rolled else "")
    return statement


def _runs(lengths: Sequence[int], whole: Sequence[int]) -> list[int]:
    """How far a box reaches along the axes outside of its runs of memory, of an array of lengths `whole`."""
    inner = len(lengths) - 1
    while inner > 0 and lengths[inner] == whole[inner]:
        inner -= 1
    return list(lengths[:inner])

"""Accumulators that are initialized with what would be added in the end, a bias say: one addition less for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

from tvm import s_tir, tirx

from mrt.backend.kernels.dot_instructions import Dot
from mrt.backend.te.stages import Hint, stage
from mrt.backend.tir.expressions import Expression, Tensor, substitute
from mrt.backend.tir.statements import loop_around, with_root
from mrt.symbol.passes import BasePass, BaseResult


def initialized_sums(
    sums: Tensor, dot: Dot, added: Tensor | None, bias: Tensor | None, of_data: Tensor | None = None
) -> Tensor | None:
    """The stage of sums, [positions..., block, lane], plus a bias and what the form of the dots adds.

    added, of_data: that, [block, lane] and [positions...].
    `AccumulatorInit` makes these what accumulators are initialized with, which TE cannot say. None where there is
    nothing, the bias does not lie in whole blocks, or the order of additions counts, as it does in floats.
    """
    shape = tuple(int(n) for n in sums.shape)
    *_, blocks, lanes = shape
    if dot.accumulator != "int32" or (bias is None and added is None and of_data is None):
        return None
    if bias is not None and bias.length < blocks * lanes:
        return None

    def initialized(*at: Expression) -> Expression:
        *position, block, lane = at
        total = sums(*at)
        if of_data is not None:
            total = total + of_data(*position)
        if added is not None:
            total = total + added(block, lane)
        return total if bias is None else total + bias(block * lanes + lane).astype(dot.accumulator)

    return stage(shape, initialized, "initialized", accumulator_init=True)


@dataclass(frozen=True)
class AccumulatorInit(BasePass[Any]):
    """Of a function that is not scheduled yet: sums begin with what a stage of `initialized_sums` adds to them.

    What it adds may be computed, too, for all blocks and lanes alike.
    """

    def run(self, function: Any, /) -> BaseResult[Any]:
        root, nests, blocks = function.body.block, _nests(function), blocks_of(function)
        marked = [i for i, each in enumerate(blocks) if each is not None and Hint.ACCUMULATOR_INIT in each.annotations]
        if not marked:
            return BaseResult(function)
        (last,) = marked
        stage_of_sums, terms = blocks[last], list(_terms(blocks[last].body.value))
        first, total = next(
            (i, term)
            for i, block in enumerate(blocks)
            for term in terms
            if block is not None
            and block.writes[0].source.same_as(getattr(term, "source", None))
            and len(block.writes[0].region) == len(stage_of_sums.writes[0].region)
        )
        start = reduce(add, (term for term in terms if term is not total))
        nests[first] = _with_block(nests[first], _initialized(blocks[first], stage_of_sums, start))
        del nests[last]
        kept = [buffer for buffer in root.alloc_buffers if not buffer.same_as(total.source)]
        return BaseResult(with_root(function, tirx.SeqStmt(nests), kept))


def blocks_of(function: Any) -> list[Any]:
    """The block of each nest of a function that is not scheduled yet, None of one that has several."""
    return [_block_of(nest) for nest in _nests(function)]


def _nests(function: Any) -> list[Any]:
    body = function.body.block.body
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def _initialized(sums: Any, whole: Any, start: Expression) -> Any:
    """The block of sums, in the memory of the block `whole` that adds `start` to them."""
    memory, at = whole.body.buffer, list(sums.body.indices)
    (value,) = substitute([start], [variable.var for variable in whole.iter_vars], at)
    body = tirx.BufferStore(memory, tirx.BufferLoad(memory, at) + sums.body.value.b, at)
    return s_tir.SBlock(
        sums.iter_vars,
        sums.reads,
        [tirx.BufferRegion(memory, sums.writes[0].region)],
        sums.name_hint,
        body,
        init=tirx.BufferStore(memory, value, at),
        annotations=sums.annotations,
    )


def _terms(value: Expression) -> Iterator[Expression]:
    """Those of a sum, in whatever order TVM has put them."""
    if isinstance(value, tirx.Add):
        yield from _terms(value.a)
        yield from _terms(value.b)
    else:
        yield value


def _block_of(nest: Any) -> Any:
    """The only block within loops; None where there are several."""
    while isinstance(nest, tirx.For):
        nest = nest.body
    return nest.block if isinstance(nest, s_tir.SBlockRealize) else None


def _with_block(nest: Any, block: Any) -> Any:
    """The loops with another block in them."""
    if isinstance(nest, tirx.For):
        return loop_around(nest, _with_block(nest.body, block))
    return s_tir.SBlockRealize(nest.iter_values, nest.predicate, block)

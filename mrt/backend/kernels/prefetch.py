"""Weights that are fetched before they are needed: those of the next blocks of channels, while these are multiplied.

Each weight is read once for each tile of positions, and comes from far memory the first time. Processors foresee that
within a page of memory only, so that dots would wait at every new one.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import s_tir, tirx
from tvm.tirx.op import address_of

from mrt.backend.expressions import Expression, constant, ravel, substitute
from mrt.backend.kernels.written import replace_loops, sequence
from mrt.backend.stages import Hint

LINE_BYTES = 64
"""Of a cache."""
MOST_LINES = 4
"""That a step fetches: if it had to be more, memory is what limits, and one stream is faster than two."""
READ, SECOND_CACHE, DATA = 0, 2, 1
"""What LLVM's prefetch takes: no write is to come, where to, no instructions."""


def fetch_weights(function: Any) -> Any:
    """The scheduled function with prefetches in the loops that have the annotation `Hint.FETCHES`."""
    return replace_loops(function, Hint.FETCHES, _fetching)


def _fetching(loop: Any) -> Any:
    """The loop of a step over the reduction, which also fetches an even share of the next blocks' weights."""
    together, tiles, tile = (int(number) for number in loop.annotations[Hint.FETCHES])
    block, at = _first_turn(loop.body)
    sums, weights = block.writes[0].source, block.reads[-1].source
    # The axes of the block are [positions..., block, lane, taps..., step, ...], those of weights [block, taps..., step,
    # lane, depth].
    rank, (blocks, *reduced, _, _) = len(sums.shape) - 2, [int(length) for length in weights.shape]
    number, taken = at[rank], at[rank + 2 : rank + 2 + len(reduced)]
    done = ravel(at[:rank], [int(length) for length in sums.shape[:rank]]) // tile
    steps, element = math.prod(reduced), weights.dtype.itemsize
    share = -(-math.prod(int(length) for length in weights.shape[1:]) * together // (tiles * steps))
    lines = -(-share * element // LINE_BYTES)
    fetches = []
    if lines <= MOST_LINES:
        place = (done * steps + ravel(taken, reduced)) * share
        first = tirx.min(number + together, blocks - together)
        fetches = [_fetch(weights, first, place + line * (LINE_BYTES // element)) for line in range(lines)]
    return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, sequence([*fetches, loop.body]))


def _first_turn(statement: Any) -> tuple[Any, list[Expression]]:
    """The block within loops, and its index in the first turn of them; ValueError if there is more in the loops."""
    variables: list[Any] = []
    while isinstance(statement, tirx.For):
        variables, statement = [*variables, statement.loop_var], statement.body
    if not isinstance(statement, s_tir.SBlockRealize):
        raise ValueError("weights are not read in a loop of their own")
    zeros = [constant(0, "int32")] * len(variables)
    return statement.block, substitute(statement.iter_values, variables, zeros)


def _fetch(weights: Any, block: Expression, place: Expression) -> Any:
    """Fetches what lies `place` elements after the beginning of a block."""
    zeros = [constant(0, "int32")] * (len(weights.shape) - 2)
    address = address_of(tirx.BufferLoad(weights, [block, *zeros, place]))
    numbers = (constant(number, "int32") for number in (READ, SECOND_CACHE, DATA))
    return tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", address, *numbers))

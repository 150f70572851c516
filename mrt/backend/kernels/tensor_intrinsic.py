"""Tensor intrinsics: what TVM finds in the loops of a schedule, and the statements that it puts in their place.

Both are made of nodes: as scripts, which TVM parses, those of one dot took a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, s_tir, tirx

from mrt.backend.tir.expressions import Expression, constant
from mrt.backend.tir.statements import plain_block, sequence, serial, whole_region

Buffer = Any
"""A variable of TVM's type of buffers."""


@dataclass(frozen=True)
class Part:
    """A part of an array that an intrinsic takes or makes.

    apart: of a matrix, whether its rows may lie at any distance from each other.
    """

    shape: tuple[int, ...]
    dtype: str
    apart: bool = False

    def buffer(self, name: str) -> Buffer:
        strides = [tirx.Var("pitch", "int32"), 1] if self.apart else None
        return tirx.decl_buffer(self.shape, self.dtype, name, strides=strides, offset_factor=1)


def tensor_intrinsic(
    name: str,
    sources: Sequence[Part],
    result: Part,
    element: Callable[..., Expression],
    vectors: Callable[..., Sequence[Any]],
    summed: Sequence[int] = (),
) -> str:
    """The name of an intrinsic, which is registered when first asked for.

    element: gives a value for one place of the result, of the buffers of the sources, the place, and an index for each
    axis that is `summed`, of these lengths. Where there are such axes the result adds the values up, to what it holds;
    else it is the value.
    vectors: gives the statements that do it all, of the buffers of the sources and of the result.
    """
    if s_tir.TensorIntrin.get(name, allow_missing=True) is None:
        taken, made = [part.buffer(f"x{i}") for i, part in enumerate(sources)], result.buffer("y")
        reads = [whole_region(each) for each in ([made, *taken] if summed else taken)]
        bodies = (_loops(taken, made, element, result.shape, summed), sequence(vectors(*taken, made)))
        found, put = (plain_block("root", body, (), reads, [whole_region(made)]) for body in bodies)
        s_tir.TensorIntrin.register(name, tirx.PrimFunc([*taken, made], found), tirx.PrimFunc([*taken, made], put))
    return name


def loaded(buffer: Buffer, at: Sequence[int], lanes: int) -> Expression:
    """A vector of neighbours, the first of which has the index `at`."""
    return tirx.BufferLoad(buffer, _neighbours(at, lanes))


def stored(buffer: Buffer, at: Sequence[int], lanes: int, value: Expression) -> Any:
    """The statement that stores a vector in neighbours."""
    return tirx.BufferStore(buffer, value, _neighbours(at, lanes))


def in_each_lane(word: Expression, lanes: int, dtype: str) -> Expression:
    """Neighbours that have 32 bits together, in each of so many lanes, as a vector of elements of `dtype`."""
    given = tirx.Broadcast(tirx.reinterpret("int32", word), lanes)
    return tirx.reinterpret(dtype, given)


def _neighbours(at: Sequence[int], lanes: int) -> list[Expression]:
    *outer, first = (constant(place, "int32") for place in at)
    return [*outer, tirx.Ramp(first, constant(1, "int32"), lanes)]


def _loops(
    sources: Sequence[Buffer],
    result: Buffer,
    element: Callable[..., Expression],
    places: Sequence[int],
    summed: Sequence[int],
) -> Any:
    """Loops over the places of the result, and over what is summed, as schedules have them."""
    lengths, kinds = [*places, *summed], [tirx.IterVar.DataPar] * len(places) + [tirx.IterVar.CommReduce] * len(summed)
    axes = [
        tirx.IterVar(ir.Range(0, length), tirx.Var(f"at{i}", "int32"), kind)
        for i, (length, kind) in enumerate(zip(lengths, kinds, strict=True))
    ]
    index = [axis.var for axis in axes]
    at, value = index[: len(places)], element(*sources, *index)
    held = tirx.BufferLoad(result, at)
    body = tirx.BufferStore(result, held + value if summed else value, at)
    known = {each: each for each in (*sources, result)}
    reads, writes, _ = s_tir.analysis.get_sblock_access_region(s_tir.SBlock(axes, [], [], "update", body), known)
    loops = [tirx.Var(f"i{i}", "int32") for i in range(len(axes))]
    nest: Any = s_tir.SBlockRealize(loops, True, s_tir.SBlock(axes, reads, writes, "update", body))
    for variable, length in zip(reversed(loops), reversed(lengths), strict=True):
        nest = serial(variable, length, nest)
    return nest

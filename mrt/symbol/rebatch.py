"""Gives a graph another batch size."""

from __future__ import annotations

from dataclasses import dataclass

from mrt.errors import GraphError
from mrt.symbol.builder import GraphBuilder
from mrt.symbol.graph import Graph
from mrt.symbol.passes import Pass, PassResult
from mrt.symbol.symbol import Symbol


@dataclass(frozen=True)
class Rebatch(Pass):
    """The same network for `batch` samples at once, axis 0 of every input.

    1. Every input's axis 0 becomes `batch`; all inputs must have had the same length there.
    2. Every symbol that depends on an input is inferred anew. Its operator must keep samples apart, and its type may
       change in the length of axis 0 only, from the old batch to the new one.

    Raises GraphError naming the first symbol that does not allow it, and why: a reshape, a constant operand or an
    operator may hold the old batch size in it or mix samples. Such a graph runs sample by sample.
    """

    batch: int

    def run(self, graph: Graph) -> PassResult:
        old = batch_of(graph)
        if self.batch < 1:
            raise GraphError(f"batch {self.batch} is asked; at least 1 is needed")
        if self.batch == old or not graph.inputs:
            return PassResult(graph)
        builder = GraphBuilder()
        new: dict[Symbol, Symbol] = {}
        for symbol in graph.inputs:
            new[symbol] = builder.input(symbol.name, symbol.type.with_shape((self.batch, *symbol.shape[1:])))
        for symbol in graph.symbols:
            if symbol in new:
                continue
            inputs = tuple(new[source] for source in symbol.inputs)
            if symbol.is_variable or all(a is b for a, b in zip(inputs, symbol.inputs, strict=True)):
                new[symbol] = builder.adopt(symbol, graph.value(symbol))
            else:
                new[symbol] = self._rebatched(symbol, inputs, builder, old)
        return PassResult(builder.graph([new[symbol] for symbol in graph.outputs]))

    def _rebatched(self, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder, old: int) -> Symbol:
        what = f"{symbol.name} ({symbol.op})"
        types = [source.type for source in symbol.inputs]
        batched = [a is not b for a, b in zip(inputs, symbol.inputs, strict=True)]
        obstacle = symbol.operator.batch_obstacle_among(types, batched)
        if obstacle:
            raise GraphError(f"{what}: {obstacle}; {_ONLY.format(old)}")
        if symbol.shape[:1] != (old,):
            raise GraphError(f"{what}: axis 0 of {symbol.type} is not the batch of {old}; {_ONLY.format(old)}")
        try:
            result = builder.apply(symbol.operator, inputs, symbol.name, symbol.origin)
        except GraphError as error:
            raise GraphError(f"{error}; the batch of {old} is baked in, {_ONLY.format(old)}") from None
        if result.type != symbol.type.with_shape((self.batch, *symbol.shape[1:])):
            raise GraphError(
                f"{what}: with batch {self.batch} {symbol.type} becomes {result.type}; the batch of {old} is baked in, "
                f"{_ONLY.format(old)}"
            )
        return result


_ONLY = "the graph runs with batch {} only"


def batch_of(graph: Graph) -> int:
    """The length of axis 0 of every input; GraphError where inputs differ or have no axis. 1 without inputs."""
    lengths = {symbol.name: symbol.shape[:1] for symbol in graph.inputs}
    if len(set(lengths.values())) > 1 or () in lengths.values():
        found = ", ".join(f"{symbol.name}: {symbol.type}" for symbol in graph.inputs)
        raise GraphError(f"axis 0 of every input must be the same batch, found {found}")
    return next((shape[0] for shape in lengths.values()), 1)

"""Gives a graph another batch size."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from mrt.errors import GraphError
from mrt.messages import short
from mrt.symbol.builder import GraphBuilder
from mrt.symbol.graph import Graph
from mrt.symbol.passes import Pass, PassResult
from mrt.symbol.symbol import Symbol

_log = logging.getLogger(__name__)

MOST_SAMPLES = 2**20
"""The largest batch: beyond it compiling takes minutes, and running more memory than there is."""


@dataclass(frozen=True)
class Rebatch(Pass):
    """The same network for `batch` samples at once, axis 0 of every input.

    1. Every input's axis 0 becomes `batch`; all inputs must have had the same length there.
    2. Every symbol that depends on an input is inferred anew. Its operator must keep samples apart, and its type may
       change in the length of axis 0 only, from the old batch to the new one.
    3. Where a constant operand does not serve the new batch as it is, such as a transformer's class token in a Concat,
       the constant operands that hold the same for every sample of the old batch are repeated for the new one.

    Raises GraphError naming the first symbol that does not allow it, and why: a reshape, a constant that differs from
    sample to sample or an operator may hold the old batch size in it or mix samples. Such a graph runs sample by
    sample.
    """

    batch: int

    def __post_init__(self) -> None:
        check_batch(self.batch)

    def run(self, graph: Graph) -> PassResult:
        old = batch_of(graph)
        if self.batch == old or not graph.inputs:
            return PassResult(graph)
        builder = GraphBuilder(reserved=graph.by_name)
        new: dict[Symbol, Symbol] = {}
        repeated = _Repeated(graph, builder, old, self.batch)
        for symbol in graph.inputs:
            new[symbol] = builder.input(symbol.name, symbol.type.with_shape((self.batch, *symbol.shape[1:])))
        for symbol in graph.symbols:
            if symbol in new:
                continue
            inputs = tuple(new[source] for source in symbol.inputs)
            if symbol.is_variable or all(a is b for a, b in zip(inputs, symbol.inputs, strict=True)):
                new[symbol] = builder.adopt(symbol, graph.value(symbol))
            else:
                new[symbol] = self._rebatched(symbol, inputs, builder, repeated)
        return PassResult(builder.graph([new[symbol] for symbol in graph.outputs]))

    def _rebatched(
        self, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder, repeated: _Repeated
    ) -> Symbol:
        obstacle = self._obstacle(symbol, inputs, repeated.old)
        if obstacle:
            inputs = repeated.among(symbol, inputs)
            if self._obstacle(symbol, inputs, repeated.old):
                raise GraphError(f"{symbol.name} ({symbol.op}): {obstacle}; {_ONLY.format(repeated.old)}")
        return builder.reapply(symbol, inputs)

    def _obstacle(self, symbol: Symbol, inputs: tuple[Symbol, ...], old: int) -> str:
        """Why the operator, given a batch, does not do the same to each sample as alone; "" where it does."""
        batched = [new is not source for new, source in zip(inputs, symbol.inputs, strict=True)]
        obstacle = symbol.operator.batch_obstacle_among([source.type for source in symbol.inputs], batched)
        if obstacle:
            return obstacle
        if symbol.shape[:1] != (old,):
            return f"axis 0 of {symbol.type} is not the batch of {old}"
        try:
            found = symbol.operator.infer(*(source.type for source in inputs))
        except GraphError as error:
            return f"{error}; the batch of {old} is baked in"
        if found != symbol.type.with_shape((self.batch, *symbol.shape[1:])):
            return f"with batch {self.batch} {symbol.type} becomes {found}; the batch of {old} is baked in"
        return ""


class _Repeated:
    """The constant operands that follow the batch, as parameters of the new graph; each is made once."""

    def __init__(self, graph: Graph, builder: GraphBuilder, old: int, batch: int) -> None:
        self.old = old
        self._graph, self._builder, self._batch = graph, builder, batch
        self._made: dict[Symbol, Symbol] = {}

    def among(self, symbol: Symbol, inputs: tuple[Symbol, ...]) -> tuple[Symbol, ...]:
        """`inputs`, the constants repeated that have the rank and the batch of `symbol`."""
        follows = (symbol.type.rank, (self.old,))
        return tuple(
            self._of(source) if new is source and (source.type.rank, source.shape[:1]) == follows else new
            for source, new in zip(symbol.inputs, inputs, strict=True)
        )

    def _of(self, source: Symbol) -> Symbol:
        """`source` with its row repeated for each sample of the new batch; itself where its rows differ."""
        if source not in self._made:
            (value,) = Graph((), (source,), self._graph.parameters).evaluate({})
            if (value != value[:1]).any():
                return source
            rows = np.repeat(value[:1], self._batch, axis=0)
            self._made[source] = self._builder.parameter(f"{source.origin}_batch_{self._batch}", rows, source.origin)
        return self._made[source]


_ONLY = "the graph runs with batch {} only"


def sized(graph: Graph, batch: int) -> Graph:
    """The graph for `batch` samples, or as it is where it bakes its batch in."""
    try:
        return Rebatch(batch)(graph)
    except GraphError as refusal:
        _log.info("runs with batch %d: %s", batch_of(graph), refusal)
        return graph


def check_batch(batch: object) -> None:
    """GraphError unless a batch is a whole number of samples, and not empty."""
    if isinstance(batch, bool) or not isinstance(batch, (int, np.integer)) or batch < 1:
        raise GraphError(f"batch is {short(batch)}; a whole number, 1 or more, is needed")
    if batch > MOST_SAMPLES:
        raise GraphError(f"batch is {short(batch)}; at most {MOST_SAMPLES} is possible")


BATCH_ELSEWHERE = (
    "where it is another axis, or none, say which: model.batch_axes: {NAME: AXIS or null} (batch_axes= of load_model, "
    "or mrt.batch_first)"
)


def batch_of(graph: Graph) -> int:
    """The length of axis 0 of every input; GraphError where inputs differ or have no axis. 1 without inputs."""
    lengths = {symbol.name: symbol.shape[:1] for symbol in graph.inputs}
    if len(set(lengths.values())) > 1 or () in lengths.values():
        found = ", ".join(f"{symbol.name}: {symbol.type}" for symbol in graph.inputs)
        raise GraphError(f"axis 0 of every input must be the same batch, found {found}; {BATCH_ELSEWHERE}")
    return next((shape[0] for shape in lengths.values()), 1)


def check_outputs(graph: Graph) -> None:
    """GraphError naming the first output that depends on an input and does not have the inputs' batch at axis 0."""
    depends = graph.dependents(graph.inputs)
    for symbol in graph.outputs:
        if symbol in depends and symbol.shape[:1] != (batch_of(graph),):
            raise GraphError(
                f"output {symbol.name} ({symbol.op}) is {symbol.type}; its axis 0 must be the batch, which is "
                f"{batch_of(graph)} in the inputs: keep the batch there in the model, or {BATCH_ELSEWHERE}"
            )

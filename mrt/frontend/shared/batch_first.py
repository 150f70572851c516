"""Networks whose batch is not axis 0 of every input and output become networks in which it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

from mrt.errors import GraphError
from mrt.frontend.shared.channels_first import Order, input_before, is_nothing, moved_behind, order_of, through
from mrt.frontend.shared.inputs import BatchAxes, checked_batch_axes
from mrt.symbol import Graph, GraphBuilder, Operator, Pass, PassResult, Symbol, TensorType
from mrt.symbol.builder import rewrite_graph
from mrt.symbol.operators.arrangement import SwapAxis
from mrt.symbol.operators.linear import BatchDot, FullyConnected
from mrt.symbol.operators.normalization import LayerNorm
from mrt.symbol.operators.selection import Embedding, Where
from mrt.symbol.operators.transform import Reshape, Take, Transpose
from mrt.symbol.types import normalize_axis


@dataclass(frozen=True)
class BatchFirst(Pass):
    """The same network, axis 0 of every input and output the batch.

    axes: the batch axis by the name of an input or output, as the model or the graph calls it. An input that is not
    named has it at axis 0, an output where a longer batch makes it longer.

    1. An input is given with its batch in front, the other axes in their order; a transpose behind it puts it back.
    2. Transposes that move the batch move behind what reads them, to the outputs, where they vanish: `moved_behind`,
       and sums of products that leave the last axes where they are.
    3. A reshape that keeps the elements of each sample together becomes one with the batch in front.
    4. Beside an input without a batch operators stay as they are, for one sample at a time.
    5. An operator that is none of these stays behind its transposes; such a graph runs sample by sample (`Rebatch`).

    Raises GraphError for a name that is no input or output, for an axis that a tensor does not have, where inputs have
    different batches, and for an output whose batch is not found.
    """

    axes: BatchAxes = field(default_factory=dict)

    def __post_init__(self) -> None:
        checked_batch_axes(self.axes)

    def run(self, graph: Graph) -> PassResult:
        tensors = {symbol.name: symbol.type for symbol in (*graph.inputs, *graph.outputs)}
        titled = {title: symbol.name for title, symbol in zip(graph.titles, graph.outputs, strict=True)}
        given = {name if name in tensors else titled.get(name, name): axis for name, axis in self.axes.items()}
        unknown = [name for name in given if name not in tensors]
        if unknown:
            called = dict.fromkeys((*(symbol.name for symbol in graph.inputs), *graph.titles))
            raise GraphError(
                f"batch axes are given for {', '.join(unknown)}, which no input or output is called; "
                f"there are {', '.join(called)}"
            )
        axes = {name: _normal(name, axis, tensors[name]) for name, axis in given.items()}
        builder = GraphBuilder(reserved=graph.by_name)
        new = {symbol: _front(symbol, axes.get(symbol.name, 0), builder) for symbol in graph.inputs}
        _check_batch(graph, axes)
        depends = graph.dependents(graph.inputs)
        for symbol in graph.symbols:
            if symbol in new:
                continue
            if symbol not in depends:
                new[symbol] = builder.adopt(symbol, graph.value(symbol))
                continue
            inputs = tuple(new[source] for source in symbol.inputs)
            moved = None if None in axes.values() else _moved(symbol, inputs, builder)
            new[symbol] = builder.reapply(symbol, inputs) if moved is None else moved
        found = _batch_axes(graph, axes)
        outputs = [
            _first(symbol, new[symbol], found(symbol, new[symbol]), builder) if symbol in depends else new[symbol]
            for symbol in graph.outputs
        ]
        made = _called(builder.graph(outputs), [symbol.name for symbol in graph.outputs])
        return PassResult(made.read_like(graph))


def _normal(name: str, axis: int | None, type: TensorType) -> int | None:
    if axis is None:
        return None
    try:
        return normalize_axis(axis, type.rank)
    except GraphError:
        raise GraphError(f"the batch axis of {name} is given as {axis}; it is {type}, of rank {type.rank}") from None


def _check_batch(graph: Graph, axes: BatchAxes) -> None:
    lengths = {}
    for symbol in graph.inputs:
        axis = axes.get(symbol.name, 0)
        if symbol.type.rank or axis is None:
            lengths[symbol.name] = 1 if axis is None else symbol.shape[axis]
    if len(set(lengths.values())) > 1 or len(lengths) < len(graph.inputs):
        found = ", ".join(f"{symbol.name}: {symbol.type}, axis {axes.get(symbol.name, 0)}" for symbol in graph.inputs)
        raise GraphError(f"the batch must be the same in every input, found {found}; give the axis of each: batch_axes")


def _front(symbol: Symbol, axis: int | None, builder: GraphBuilder) -> Symbol:
    """An input with its batch in front, in the order of the file again."""
    if axis == 0:
        return builder.adopt_input(symbol)
    if axis is None:
        moved = builder.input(symbol.name, symbol.type.with_shape((1, *symbol.shape)))
        return builder.apply(Reshape(shape=symbol.shape), [moved], f"{symbol.name}_without_batch")
    rest = symbol.shape[:axis] + symbol.shape[axis + 1 :]
    moved = builder.input(symbol.name, symbol.type.with_shape((symbol.shape[axis], *rest)))
    return builder.apply(Transpose(axes=_back(axis, symbol.type.rank)), [moved], f"{symbol.name}_batch_axis_{axis}")


def _back(axis: int, rank: int) -> Order:
    """The axes of the transpose that moves axis 0 to `axis`."""
    return (*range(1, axis + 1), 0, *range(axis + 1, rank))


def _front_of(axis: int, rank: int) -> Order:
    """The axes of the transpose that moves `axis` to 0."""
    return (axis, *(other for other in range(rank) if other != axis))


def _pending(symbol: Symbol) -> Order | None:
    """The order of a transpose that moves the batch."""
    order = order_of(symbol)
    return order if order is not None and order[0] != 0 else None


def _moved(symbol: Symbol, inputs: Sequence[Symbol], builder: GraphBuilder) -> Symbol | None:
    """The operator before the transposes of its inputs that move the batch; None where it has to stay."""
    own = order_of(symbol)
    if isinstance(symbol.operator, SwapAxis):
        first, second = symbol.operator.axes(symbol.type.rank)
        own = tuple({first: second, second: first}.get(axis, axis) for axis in range(symbol.type.rank))
    if own is not None:
        data, order = through(inputs[0], own)
        return data if is_nothing(order) else builder.apply(Transpose(axes=order), [data], symbol.name)
    if symbol.operator.keeps_order:
        return _reshaped(symbol, inputs[0], builder)
    order = max(filter(None, map(_pending, inputs)), key=len, default=())
    if not order:
        return None

    def otherwise(source: Symbol) -> Symbol | None:
        return _before(source, order, builder)

    special = _layer(symbol, inputs, order, builder, otherwise)
    return special if special is not None else moved_behind(symbol, inputs, order, builder, otherwise)


def _layer(
    symbol: Symbol,
    inputs: Sequence[Symbol],
    order: Order,
    builder: GraphBuilder,
    otherwise: Callable[[Symbol], Symbol | None],
) -> Symbol | None:
    """An operator that treats the leading axes alike, or all axes but its own, before a transpose that keeps these."""
    operator: Operator = symbol.operator
    last, order_made = tuple(range(len(order))), order
    data: list[Symbol | None]
    match operator:
        case FullyConnected(flatten=False) if order[-1:] == last[-1:] and order_of(inputs[0]) == order:
            data = [inputs[0].inputs[0], *inputs[1:]]
        case LayerNorm(axis=axis) if order_of(inputs[0]) == order:
            operator = LayerNorm(axis=order[axis], eps=operator.eps)
            data = [inputs[0].inputs[0], *inputs[1:]]
        case Embedding() if order_of(inputs[0]) == order:
            data, order_made = [inputs[0].inputs[0], inputs[1]], (*order, len(order))
        case Take(axis=0) if order_of(inputs[1]) == order and order_of(inputs[0]) is None:
            data = [inputs[0], inputs[1].inputs[0]]
            order_made = (*order, *range(len(order), symbol.type.rank))
        case BatchDot() if order[-2:] == last[-2:]:
            data = [input_before(source, order, builder) or otherwise(source) for source in inputs]
        case Where() if all(source.type.rank in (0, len(order)) for source in inputs):
            data = [input_before(source, order, builder) or otherwise(source) for source in inputs]
        case _:
            return None
    found = [source for source in data if source is not None]
    if len(found) < len(data):
        return None
    made = builder.apply(operator, found, symbol.name, symbol.origin)
    return builder.apply(Transpose(axes=order_made), [made], f"{symbol.name}_transposed")


def _before(source: Symbol, order: Order, builder: GraphBuilder) -> Symbol | None:
    """What a transpose of this order would have to read to give `source`, with leading axes where it has fewer."""
    missing = len(order) - source.type.rank
    if missing < 0 or not source.type.rank:
        return None
    data, own = through(source, range(source.type.rank))
    if missing:
        data = builder.apply(Reshape(shape=(0, *(1,) * missing, *data.shape[1:])), [data], f"{source.name}_leading")
        own = (*range(1, missing + 1), *(axis + missing if axis else 0 for axis in own))
    back = tuple(own[order.index(axis)] for axis in range(len(order)))
    return data if is_nothing(back) else builder.apply(Transpose(axes=back), [data], f"{source.name}_before")


def _reshaped(symbol: Symbol, source: Symbol, builder: GraphBuilder) -> Symbol | None:
    """A reshape of data whose batch is in front, and the transpose that puts it where the file has it; None for one
    that leaves it there, mixes samples, or is made for one batch only."""
    order = _pending(source) or tuple(range(source.type.rank))
    data = source if is_nothing(order) else source.inputs[0]
    place = order.index(0) if order else 0
    axis = _lengthened(symbol, source.type, place)
    if axis is None or prod(source.shape[:place]) != prod(symbol.shape[:axis]) or (axis == 0 and is_nothing(order)):
        return None
    data, plain = through(source, _front_of(place, source.type.rank))
    if not is_nothing(plain):
        data = builder.apply(Transpose(axes=plain), [data], f"{symbol.name}_in_order")
    rest = symbol.shape[:axis] + symbol.shape[axis + 1 :]
    made = builder.apply(Reshape(shape=(0, *rest)), [data], symbol.name, symbol.origin)
    if axis == 0:
        return made
    return builder.apply(Transpose(axes=_back(axis, symbol.type.rank)), [made], f"{symbol.name}_transposed")


def _lengthened(symbol: Symbol, data: TensorType, place: int) -> int | None:
    """The axis of a reshape that is the axis `place` of its data, whatever its length; None where there is none.

    Where the target is written out it is an axis of that length with as many elements before it: of several that have
    length 1 any will do, since it is the samples that are kept apart.
    """
    if not data.rank:
        return None
    batch, before = data.shape[place], prod(data.shape[:place])
    longer = 3 * data.shape[place] + 2
    shape = (*data.shape[:place], longer, *data.shape[place + 1 :])
    try:
        found = symbol.operator.infer(data.with_shape(shape)).shape
    except GraphError:
        same = [axis for axis, size in enumerate(symbol.shape) if size == batch and prod(symbol.shape[:axis]) == before]
        return place if place in same else next(iter(same), None)
    return _only_change(symbol.shape, found, batch, longer)


def _only_change(shape: Sequence[int], found: Sequence[int], batch: int, longer: int) -> int | None:
    changed = [axis for axis, pair in enumerate(zip(shape, found, strict=False)) if pair[0] != pair[1]]
    if len(shape) != len(found) or len(changed) != 1 or (shape[changed[0]], found[changed[0]]) != (batch, longer):
        return None
    return changed[0]


def _batch_axes(graph: Graph, axes: BatchAxes) -> Callable[[Symbol, Symbol], int | None]:
    """Gives the batch axis of a symbol and of what it has become: to which that moves the batch, else the axis that a
    longer batch makes longer, else axis 0 where it has the length of the batch."""
    batch = next((s.shape[axis] for s in graph.inputs if (axis := axes.get(s.name, 0)) is not None), 1)
    longer = 3 * batch + 2
    types: dict[Symbol, TensorType | None] = {}
    for symbol in (*graph.inputs, *graph.symbols):
        if symbol in types:
            continue
        if symbol.is_variable:
            axis = axes.get(symbol.name, 0) if symbol in graph.inputs else None
            shape = symbol.shape if axis is None else (*symbol.shape[:axis], longer, *symbol.shape[axis + 1 :])
            types[symbol] = symbol.type.with_shape(shape)
            continue
        types[symbol] = _inferred(symbol, [types[source] for source in symbol.inputs])

    def found(symbol: Symbol, made: Symbol) -> int | None:
        if symbol.name in axes:
            return axes[symbol.name]
        order = None if None in axes.values() else _pending(made)
        if order is not None:
            return order.index(0)
        type = types[symbol]
        axis = None if type is None else _only_change(symbol.shape, type.shape, batch, longer)
        if axis is not None:
            return axis
        if type == symbol.type and None in axes.values():
            return None
        if symbol.shape[:1] == (batch,):
            return 0
        raise GraphError(
            f"output {symbol.name} ({symbol.op}) is {symbol.type}, and which axis is the batch cannot be told from the "
            f"operators; give it: batch_axes={{'{symbol.name}': AXIS}} (model.batch_axes)"
        )

    return found


def _inferred(symbol: Symbol, types: Sequence[TensorType | None]) -> TensorType | None:
    known = [type for type in types if type is not None]
    if len(known) < len(types):
        return None
    try:
        return symbol.operator.infer(*known)
    except GraphError:
        return None


def _first(symbol: Symbol, made: Symbol, axis: int | None, builder: GraphBuilder) -> Symbol:
    """An output with its batch in front, under its name."""
    if axis is None:
        return builder.apply(Reshape(shape=(1, *made.shape)), [made], f"{symbol.name}_one_sample")
    data, order = through(made, _front_of(axis, made.type.rank))
    result = data if is_nothing(order) else builder.apply(Transpose(axes=order), [data], f"{symbol.name}_batch_first")
    return result


def _called(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph with its outputs called so, save inputs and what is an output twice."""
    wanted = {
        symbol: name
        for symbol, name in zip(graph.outputs, names, strict=True)
        if not symbol.is_variable and graph.outputs.count(symbol) == 1
    }
    if all(symbol.name == name for symbol, name in wanted.items()):
        return graph
    taken = set(wanted.values())

    def rewrite(symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder) -> Symbol | None:
        if symbol in wanted:
            return builder.apply(symbol.operator, inputs, wanted[symbol], symbol.origin)
        if symbol.name in taken:
            return builder.apply(symbol.operator, inputs, f"{symbol.name}_in_order", symbol.origin)
        return None

    return rewrite_graph(graph, rewrite)

"""What a layer is: a head operator of the user's network and the operators that follow it alone, or an input.

1. An operator with a weight, one that sums up products, joins several tensors, or computes an element from others than
   that at its own place (pooling, normalization, softmax) is a head.
2. What computes element by element from one layer only, beside constants, follows it, as long as nothing else reads
   what it takes: a bias, a factor, an activation. A side path that begins and ends in it, as in x * sigmoid(x), is part
   of it.
3. What only moves values (reshape, transpose, pad, slice) belongs to the layer that it follows, or, where a head reads
   it, to that head.

So every tensor of a prepared network is of one layer, whichever operators the network has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mrt.symbol import Graph, Symbol

MOST_FOLLOWING = 24
"""Operators of a side path that is looked for."""


@dataclass(frozen=True, eq=False)
class FloatLayer:
    """A layer of a prepared float graph.

    place: among the layers, in the order of the graph. head: its operator, or an input. symbols: all of it in the order
    of the graph, what moves values for it first. end: the tensor whose values it gives, behind which there are only
    moves.
    """

    place: int
    head: Symbol
    symbols: tuple[Symbol, ...]
    end: Symbol

    @property
    def followers(self) -> tuple[Symbol, ...]:
        """What computes behind the head."""
        behind = self.symbols[self.symbols.index(self.head) + 1 :]
        return tuple(symbol for symbol in behind if not moves(symbol))


def find_layers(graph: Graph) -> tuple[FloatLayer, ...]:
    """The layers of a prepared float graph, its inputs first; every input and operator is of exactly one."""
    return _Finder(graph).found()


def layer_by_symbol(layers: Sequence[FloatLayer]) -> dict[str, FloatLayer]:
    """The layer of each symbol by name."""
    return {symbol.name: layer for layer in layers for symbol in layer.symbols}


def moves(symbol: Symbol) -> bool:
    """Whether a symbol only gives other places to the values of one tensor."""
    if symbol.is_variable or symbol.operator.is_elementwise:
        return False
    return symbol.operator.keeps_scale and not symbol.operator.family


class _Finder:
    """Makes layers in the order of the graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._outputs = set(graph.outputs)
        self._heads: list[list[Symbol]] = [[symbol] for symbol in graph.inputs]
        self._owner: dict[Symbol, list[Symbol]] = {part[0]: part for part in self._heads}
        self._waiting: dict[Symbol, list[Symbol]] = {}

    def found(self) -> tuple[FloatLayer, ...]:
        for symbol in self._graph.operators:
            if symbol not in self._owner and symbol not in self._waiting:
                self._begin(symbol)
        for symbol, path in self._waiting.items():  # of moves that nothing but moves and the output read
            if symbol not in self._owner:
                self._own([*path, symbol])
        order = {symbol: place for place, symbol in enumerate((*self._graph.inputs, *self._graph.operators))}
        parts = sorted(self._heads, key=lambda part: (not part[0].is_variable, order[_head(part)]))
        return tuple(
            FloatLayer(place, _head(part), tuple(sorted(part, key=order.__getitem__)), _end(part, order))
            for place, part in enumerate(parts)
        )

    def _begin(self, symbol: Symbol) -> None:
        sources = self._computed(symbol)
        if moves(symbol) and self._is_for_one_head(symbol):
            self._waiting[symbol] = [*self._path(sources), symbol][:-1]
            return
        part = [*self._path(sources), symbol]
        self._own(part)
        if not moves(symbol):
            self._follow(part)

    def _own(self, part: list[Symbol]) -> None:
        self._heads.append(part)
        self._owner.update(dict.fromkeys(part, part))

    def _path(self, sources: Sequence[Symbol]) -> list[Symbol]:
        """The moves that wait for who reads these."""
        return [s for source in sources if source in self._waiting for s in (*self._waiting.pop(source), source)]

    def _follow(self, part: list[Symbol]) -> None:
        """Takes what follows the last of a part, but for the moves at its end that are for another head."""
        end = part[-1]
        taken = [end]
        while (more := self._next(taken[-1])) is not None:
            taken += more
        while moves(taken[-1]) and self._is_for_one_head(taken[-1]):
            taken.pop()
        part += taken[1:]
        self._owner.update(dict.fromkeys(taken[1:], part))

    def _next(self, end: Symbol) -> list[Symbol] | None:
        """The symbols up to the next one through which alone `end` is read; None where there is none that follows."""
        if end in self._outputs:
            return None
        inside: dict[Symbol, None] = {end: None}
        added: list[Symbol] = []
        pending = list(dict.fromkeys(self._graph.consumers[end]))
        while pending and len(added) < MOST_FOLLOWING:
            ready = next((s for s in pending if self._follows(s, inside)), None)
            if ready is None:
                return None
            pending.remove(ready)
            inside[ready] = None
            added.append(ready)
            if not pending:
                return added
            if ready in self._outputs:
                return None
            pending += [s for s in dict.fromkeys(self._graph.consumers[ready]) if s not in inside and s not in pending]
        return None

    def _follows(self, symbol: Symbol, inside: Mapping[Symbol, None]) -> bool:
        operator = symbol.operator
        if symbol in self._owner or not (operator.is_elementwise or moves(symbol)):
            return False
        return all(source in inside for source in self._computed(symbol))

    def _is_for_one_head(self, symbol: Symbol) -> bool:
        """Whether one operator alone reads it, which takes its values to compute."""
        readers = set(self._graph.consumers[symbol])
        return len(readers) == 1 and symbol not in self._outputs

    def _computed(self, symbol: Symbol) -> list[Symbol]:
        return [s for s in dict.fromkeys(symbol.inputs) if self._graph.value(s) is None]


def _head(part: Sequence[Symbol]) -> Symbol:
    return next((symbol for symbol in part if not moves(symbol)), part[0])


def _end(part: Sequence[Symbol], order: Mapping[Symbol, int]) -> Symbol:
    """The last that is no move; of moves alone the last."""
    ordered = sorted(part, key=order.__getitem__)
    return next((symbol for symbol in reversed(ordered) if not moves(symbol)), ordered[-1])


def kind_of_layer(layer: FloatLayer, graph: Graph) -> str:
    """What people call it: input, its record's family, or its operator."""
    head = layer.head
    if head.is_variable:
        return "input"
    if moves(head):
        return "move"
    groups = head.operator.weight_groups()
    weight = weight_of(layer, graph)
    if weight is not None and groups > 1 and head.channel_axis is not None:
        is_depthwise = groups == head.inputs[0].shape[head.channel_axis]
        return f"{'depthwise' if is_depthwise else 'grouped'} {head.operator.family or head.op}"
    return head.operator.family or head.op.strip("_").removeprefix("broadcast_").removeprefix("elemwise_").lower()


def weight_of(layer: FloatLayer, graph: Graph) -> Symbol | None:
    """The weight of its head, where that has one which is constant."""
    head = layer.head
    if head.is_variable or head.channel_axis is None or len(head.inputs) < 2:
        return None
    return head.inputs[1] if graph.value(head.inputs[1]) is not None else None


def reads_of(layer: FloatLayer, owner: Mapping[str, FloatLayer]) -> list[int]:
    """The places of the layers whose tensors it takes, in order."""
    taken = (owner[source.name] for symbol in layer.symbols for source in symbol.inputs if source.name in owner)
    return [found.place for found in dict.fromkeys(taken) if found is not layer]


def detail_of(layer: FloatLayer) -> str:
    """Its window and stride, such as `3×3 /2`; "" where it has none."""
    operator = None if layer.head.is_variable else layer.head.operator
    kernel, stride = (tuple(getattr(operator, name, ())) for name in ("kernel", "stride"))
    said = ["×".join(map(str, kernel))] if kernel else []
    return " ".join([*said, *([f"/{max(stride)}"] if stride and max(stride) > 1 else [])])


def channels_of(layer: FloatLayer, graph: Graph) -> str:
    """Such as `16→32`, what a weight takes and gives; "" without a weight."""
    weight, axis = weight_of(layer, graph), layer.head.channel_axis
    if weight is None or axis is None:
        return ""
    return "→".join(str(shape[axis]) for shape in (layer.head.inputs[0].shape, layer.head.shape))


def follower_names(layer: FloatLayer, graph: Graph) -> Iterator[str]:
    """The operators behind the head that do more than add or multiply by constants."""
    for symbol in layer.followers:
        if symbol.operator.operation is None:
            yield symbol.operator.family or symbol.op.strip("_").lower()

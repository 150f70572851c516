"""A right operand that is transposed for a product, as keys and values are for attention, is read as it lies."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mrt.backend.rewrites.rewrite import Rewrite
from mrt.symbol import Graph, GraphBuilder, Symbol
from mrt.symbol.operators.activation import Clip
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul, BroadcastSub
from mrt.symbol.operators.integer import Cast, RightShift
from mrt.symbol.operators.linear import BatchDot
from mrt.symbol.operators.transform import Reshape, Transpose

REQUANTIZING = (BroadcastAdd, BroadcastMul, BroadcastSub, Cast, Clip, RightShift)
"""What stands between a transpose and a product, element by element, by one number for all."""


@dataclass(frozen=True)
class TurnedOperands(Rewrite[BatchDot]):
    """batch_dot(A, B), where B is transpose(X), which may be reshaped and requantized and which nothing else reads.

    1. Where the transpose moves the last axis of X to the rows of B, A B = A (B^T)^T, and B^T leaves that axis last, or
       is X.
    2. Where it leaves the last axis as it is, and B is requantized, A B stays.

    requantize(X) comes in front of the transpose then, so that it is done by whatever makes X, and rows are read as
    they lie.
    """

    about = (BatchDot,)

    def rewrite(
        self, graph: Graph, symbol: Symbol[BatchDot], inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        chain = _chain(graph, symbol)
        if not chain:
            return None
        held = inputs[1]
        for _ in chain:
            held = held.inputs[0]
        *behind, turn = chain
        for each in reversed(behind):
            if not each.operator.keeps_order:
                held = _requantized(graph, each, held, builder)
        order, is_turned = _order(turn), _is_turned(turn)
        if is_turned:
            order = (*order[:-2], order[-1], order[-2])
        if order != tuple(range(len(order))):
            held = builder.apply(Transpose(axes=order), [held], f"{turn.name}_rows", turn.origin)
        shape = (*symbol.inputs[1].shape[:-2], *held.shape[-2:])
        if shape != held.shape:
            held = builder.apply(Reshape(shape=shape), [held], f"{turn.name}_matrices", turn.origin)
        operator = replace(symbol.operator, transpose_b=symbol.operator.transpose_b != is_turned)
        return builder.apply(operator, [inputs[0], held], symbol.name, symbol.origin)


def _chain(graph: Graph, product: Symbol) -> list[Symbol]:
    """What makes the right operand, the last first, up to such a transpose; nothing where there is none."""
    found: list[Symbol] = []
    reader, made = product, product.inputs[1]
    while graph.consumers.get(made) == (reader,) and made not in graph.outputs and made.inputs:
        found.append(made)
        if order := _order(made):
            is_requantized = any(not each.operator.keeps_order for each in found[:-1])
            return found if _is_turned(made) or (is_requantized and order[-1] == len(order) - 1) else []
        if not (_moves_matrices(made) or _is_requantizing(graph, made)):
            return []
        reader, made = made, made.inputs[0]
    return []


def _order(symbol: Symbol) -> tuple[int, ...]:
    """The axes of a transpose; none of what is no transpose."""
    return symbol.operator.order(symbol.type.rank) if isinstance(symbol.operator, Transpose) else ()


def _is_turned(transpose: Symbol) -> bool:
    """Whether it moves the last axis of its data to the last but one."""
    return _order(transpose)[-2:-1] == (transpose.type.rank - 1,)


def _moves_matrices(symbol: Symbol) -> bool:
    """Whether it keeps elements in their order, and the last two axes as they are."""
    return symbol.operator.keeps_order and symbol.shape[-2:] == symbol.inputs[0].shape[-2:]


def _is_requantizing(graph: Graph, symbol: Symbol) -> bool:
    values = [graph.value(each) for each in symbol.inputs[1:]]
    return isinstance(symbol.operator, REQUANTIZING) and all(v is not None and v.size == 1 for v in values)


def _requantized(graph: Graph, symbol: Symbol, held: Symbol, builder: GraphBuilder) -> Symbol:
    """What `symbol` makes of its data, made of the same elements in another order."""
    numbers = [
        builder.parameter(f"{each.name}_of_rows", graph.parameters[each.name].reshape((1,) * held.type.rank))
        for each in symbol.inputs[1:]
    ]
    return builder.apply(symbol.operator, [held, *numbers], f"{symbol.name}_of_rows", symbol.origin)

"""What channel groups cost: the operations that layers do besides where they sum over several."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from mrt.symbol import Symbol


def added_operations(layer: Symbol, groups: Sequence[int]) -> int:
    """Multiplications by factors and additions, per sample, where a layer sums over several groups.

    groups: of every channel that it reads, which group that is in. A layer with groups of its own sums within each of
    them; where all of those read one scale nothing is added.
    """
    own = int(getattr(layer.operator, "num_group", 1))
    width = len(groups) // own
    terms = max(len(list(groupby(groups[first : first + width]))) for first in range(0, len(groups), width))
    return 2 * terms * layer.type.size // max(layer.shape[0], 1) if terms > 1 else 0


def multiplications(symbol: Symbol) -> int:
    """How many multiplications a layer does for one sample; 0 for other operators."""
    axis = symbol.operator.weight_channel_axis
    if axis is None:
        return 0
    weight = symbol.inputs[1].shape
    return symbol.type.size // max(symbol.shape[0], 1) * (symbol.inputs[1].type.size // weight[axis])

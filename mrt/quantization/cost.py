"""What operators cost to run, as far as the shapes and widths of their tensors say."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from mrt.symbol import Graph, Symbol

NARROW_BITS = 8
WIDE_FACTOR = 3.0
"""What a multiplication costs whose data has more than NARROW_BITS, with the passes over wider tensors: 1.4 to 1.9 for
a layer by itself where vectors multiply words, more in a network, measured by AVX512-VNNI."""
PASS = 4
"""What it costs to compute one element of any tensor, in multiplications of 8 bits."""
CALL = 2e5
"""What it costs to call a kernel for a sample, in such multiplications."""


def elements(symbol: Symbol) -> int:
    """How many elements a tensor has for one sample, axis 0 counting samples."""
    return symbol.type.size // max(symbol.shape[0], 1) if symbol.shape else 1


def multiplications(symbol: Symbol) -> int:
    """How many multiplications a layer or a product of two tensors does for one sample; 0 for other operators."""
    each = elements(symbol)
    axis = symbol.operator.weight_channel_axis
    if axis is not None:
        weight = symbol.inputs[1]
        return each * (weight.type.size // weight.shape[axis])
    return each * symbol.operator.summed_products(*(source.type for source in symbol.inputs))


def operations(symbol: Symbol) -> float:
    """What a symbol costs for one sample where its tensors have at most NARROW_BITS."""
    return multiplications(symbol) + PASS * elements(symbol)


def network_operations(graph: Graph) -> float:
    """What a sample costs."""
    return sum(operations(symbol) + CALL for symbol in graph.operators)


def widening(readers: set[Symbol]) -> float:
    """What it costs besides that operators read data of more than NARROW_BITS."""
    return (WIDE_FACTOR - 1) * sum(multiplications(reader) for reader in readers)


def added_operations(layer: Symbol, groups: Sequence[int]) -> int:
    """Multiplications by factors and additions, per sample, where a layer sums over several groups.

    groups: of every channel that it reads, which group that is in. A layer with groups of its own sums within each of
    them; where all of those read one scale nothing is added.
    """
    own = int(getattr(layer.operator, "num_group", 1))
    width = len(groups) // own
    terms = max(len(list(groupby(groups[first : first + width]))) for first in range(0, len(groups), width))
    return 2 * terms * elements(layer) if terms > 1 else 0

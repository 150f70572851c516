"""Which factors are taken: of those proposed for each group of tensors, the ones of least expected error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mrt.algorithm_registry import find_algorithm
from mrt.calibration import Calibration, Channels, Needs
from mrt.calibration.range_method import RangeMethod
from mrt.quantization.algorithms.algorithm import Changed, Samples
from mrt.quantization.equalization.expected_error import Quantizers, expected_errors
from mrt.quantization.equalization.factor_sets import (
    FIXED,
    FactorSets,
    Reader,
    SourceAxis,
    find_factor_sets,
)
from mrt.quantization.equalization.scaling import ScaledNetwork
from mrt.quantization.expansion import named
from mrt.quantization.granularity import channel_ranges_with_margin
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Array, Graph, Symbol

LEAST_GAIN = 0.05
"""The share of the expected error that must go for a group to be scaled."""
LEAST_FACTOR = 1 / 64
"""No channel is enlarged more: of one that was seen to be small little is known."""
HEADROOM = 1.25
"""By how much wider channels are taken to be than they were seen: once all of a tensor end where its quantizer does,
new data saturate each of them, not the widest alone."""


@dataclass(frozen=True, eq=False)
class Group:
    """Tensors whose channels are scaled together.

    readers: the layers that read them. ends: by the data of a reader, the least and the greatest value of each of its
    channels. places: by the same, where their factors stand in an array of those of the group. members: int64, sorted,
    the numbers of these factors in the network.
    """

    readers: tuple[Reader, ...]
    ends: Mapping[Symbol, tuple[Array, Array]]
    places: Mapping[Symbol, Array]
    members: Array

    @classmethod
    def of(cls, sets: FactorSets, readers: tuple[Reader, ...], observed: Calibration) -> Group | None:
        """The group that these layers read; None where calibration did not tell the channels of its tensors apart."""
        ends = {}
        for tensor in dict.fromkeys(reader.data for reader in readers):
            found = sets.channels(tensor, observed.ranges)
            if found is None:
                return None
            lo, hi = np.array(channel_ranges_with_margin(found), np.float64).T
            ends[tensor] = lo, hi
        members = np.unique(np.concatenate([sets.along[tensor].numbers for tensor in ends]))
        places = {tensor: np.searchsorted(members, sets.along[tensor].numbers) for tensor in ends}
        return cls(readers, ends, places, members)

    @property
    def count(self) -> int:
        """How many factors the group has."""
        return len(self.members)

    def spread(self, quantizers: Quantizers) -> Array:
        """For each factor, float64: the largest share of a tensor's range that its channel takes, with
        HEADROOM; at most 1."""
        shares = np.zeros(self.count)
        for tensor, (lo, hi) in self.ends.items():
            below, above = max(-float(lo.min()), 0.0), max(float(hi.max()), 0.0)
            if not quantizers.is_affine(tensor):
                below = above = max(below, above)
            parts = [np.maximum(end, 0) / whole for end, whole in ((-lo, below), (hi, above)) if whole > 0]
            if parts:
                np.maximum.at(shares, self.places[tensor], np.max(parts, axis=0))
        return np.minimum(HEADROOM * shares, 1.0)


Ways = Callable[[Group, Quantizers], "dict[str, Array]"]
"""From a group to its factors as they are proposed, by what a note calls them: float64 (count,), positive."""


def squares_needed(graph: Graph, source_axis: SourceAxis) -> Needs:
    """The mean squares of the channels of tensors that may be scaled, where a layer reads them."""
    sets = find_factor_sets(graph, source_axis)
    readers = (reader for readers in sets.members.values() for reader in readers)
    return Needs(squares=tuple(dict.fromkeys(Channels(reader.data.name, reader.axis) for reader in readers)))


def scale_channels(
    name: str,
    graph: Graph,
    observed: Calibration,
    config: QuantizationConfig,
    samples: Samples,
    source_axis: SourceAxis,
    ways: Ways,
) -> Changed:
    """The network with the channels scaled that gain by it.

    name: of the algorithm, for notes. ways: what is proposed for a group besides leaving it alone.
    """
    quantizers = Quantizers.of(graph, config, observed)
    closed = {*quantizers.fixed, *(s.name for s in graph.operators if not _may_be_scaled(s, quantizers))}
    sets = find_factor_sets(graph, source_axis, closed)
    factors, notes = np.ones(len(sets.groups)), list[str]()
    idle, unseen = list[str](), list[str]()
    for number, maker in ((n, maker) for n, maker in sets.makers.items() if n in sets.members):
        group = Group.of(sets, sets.members[number], observed)
        if group is None:
            unseen.append(maker.name)
            continue
        way, chosen, gain = _least(group, ways(group, quantizers), quantizers)
        if gain < LEAST_GAIN:
            idle.append(maker.name)
            continue
        factors[group.members] = chosen
        tensors = named([tensor.name for tensor in group.ends])
        notes.append(
            f"{name}: {tensors} scaled by {way}, factors from {chosen.min():.3g} to {chosen.max():.3g}; the expected "
            f"error of what reads it falls by {100 * gain:.0f} %"
        )
    reasons = {"since little is gained": idle, "since calibration did not tell the channels apart": unseen}
    for source, why in sets.obstacles.items():
        reasons.setdefault(f"since factors would have to pass {why}", []).append(source)
    notes += [f"{name}: left alone, {why}: {_several(left)}" for why, left in reasons.items() if left]
    if (factors == 1).all():
        return Changed(graph, tuple(notes), observed)
    scaled = ScaledNetwork.of(sets, factors)
    follows = find_algorithm(RangeMethod, samples.config.method).covers_all
    return Changed(scaled.graph, tuple(notes), scaled.observed(observed) if follows else None)


def bounded(factors: Array) -> Array:
    """Factors over the greatest of them, none below LEAST_FACTOR."""
    greatest = float(factors.max(initial=0.0))
    return np.maximum(factors / greatest, LEAST_FACTOR) if greatest > 0 else np.ones_like(factors)


def _may_be_scaled(symbol: Symbol, quantizers: Quantizers) -> bool:
    """Channels with scales of their own gain nothing; those of a weight with one scale would lose."""
    if symbol.name not in quantizers.options:
        return False
    is_layer = symbol.operator.weight_channel_axis is not None
    return not quantizers.has_groups(symbol) and not (
        is_layer and quantizers.config.weight_of(symbol.name).scales == "layer"
    )


def _least(group: Group, ways: Mapping[str, Array], quantizers: Quantizers) -> tuple[str, Array, float]:
    """The way of least expected error, its factors, and the share of the error that it saves."""
    proposed = [np.ones(group.count), *ways.values()]
    for factors in proposed:
        factors[group.members == FIXED] = 1.0
    total = np.zeros(len(proposed))
    for reader in group.readers:
        places = group.places[reader.data]
        total += expected_errors(reader, group.ends[reader.data], [each[places] for each in proposed], quantizers)
    best = int(total.argmin())
    gain = 1 - float(total[best] / total[0]) if total[0] > 0 else 0.0
    return ["", *ways][best], proposed[best], gain


def _several(names: Sequence[str]) -> str:
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]

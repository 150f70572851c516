"""Factors for layers alone, where something else reads what they read too: a multiplication in front of them.

A transformer that normalises behind its sums adds what it normalised up as well, so that its factors could not go into
the normalisation. A multiplication by a constant of each channel goes into the scale of its integers and costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mrt.calibration import Calibration, Channels, Needs
from mrt.quantization.algorithms.algorithm import Changed
from mrt.quantization.equalization.factor_sets import SourceAxis, find_factor_sets
from mrt.quantization.equalization.layers import has_rows
from mrt.symbol import Array, Graph, GraphBuilder, Symbol
from mrt.symbol.builder import keep, rewrite_graph
from mrt.symbol.operators.broadcast import BroadcastMul


@dataclass(frozen=True, eq=False)
class WithOwnFactors:
    """A graph with multiplications by 1 between tensors and the layers that read them.

    sources: by the name of such a multiplication, that of the tensor.
    """

    graph: Graph
    sources: Mapping[str, str]

    @classmethod
    def of(cls, graph: Graph, source_axis: SourceAxis) -> WithOwnFactors:
        """In front of the layers behind sources none of whose factors is free, since others read them."""
        sets = find_factor_sets(graph, source_axis)
        stuck = {s: sets.along[s].axis for s in sets.sources if s.name in sets.obstacles}
        layers = {s: {r for r in graph.consumers[s] if _reads_channels(graph, r, s, stuck[s])} for s in stuck}
        layers = {source: readers for source, readers in layers.items() if readers}
        made: dict[Symbol, Symbol] = {}

        def rewrite(symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder) -> Symbol | None:
            source = symbol.inputs[0] if symbol.inputs else symbol
            if symbol not in layers.get(source, ()):
                return None
            if source not in made:
                shape = tuple(n if axis == stuck[source] else 1 for axis, n in enumerate(source.shape))
                ones = builder.parameter(f"{source.name}_factors", np.ones(shape, source.dtype))
                made[source] = builder.apply(BroadcastMul(), [inputs[0], ones], f"{source.name}_smoothed")
            return keep(symbol, (made[source], *inputs[1:]), builder)

        changed = rewrite_graph(graph, rewrite) if layers else graph
        return cls(changed, {new.name: source.name for source, new in made.items()})

    def needs(self, needs: Needs) -> Needs:
        """What is to be observed of the graph as it was, so that these needs of the changed one follow."""
        return replace(needs, means=self._before(needs.means), squares=self._before(needs.squares))

    def observed(self, before: Calibration) -> Calibration:
        """What calibration would find."""
        ranges = {new: before.ranges[source] for new, source in self.sources.items() if source in before.ranges}
        return replace(
            before,
            ranges={**before.ranges, **ranges},
            means=self._copied(before.means),
            squares=self._copied(before.squares),
        )

    def without_idle(self, changed: Changed) -> Changed:
        """A change of the graph, without the multiplications that are still by 1."""
        idle = {name for name in self.sources if _is_idle(changed.graph, name)}
        if not idle:
            return changed

        def rewrite(symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder) -> Symbol | None:
            return inputs[0] if symbol.name in idle else None

        observed = changed.observed
        if observed is not None:
            observed = replace(
                observed,
                ranges={name: found for name, found in observed.ranges.items() if name not in idle},
                means={each: found for each, found in observed.means.items() if each.tensor not in idle},
                squares={each: found for each, found in observed.squares.items() if each.tensor not in idle},
            )
        return replace(changed, graph=rewrite_graph(changed.graph, rewrite), observed=observed)

    def _before(self, asked: Sequence[Channels]) -> tuple[Channels, ...]:
        return tuple(replace(each, tensor=self.sources.get(each.tensor, each.tensor)) for each in asked)

    def _copied(self, table: Mapping[Channels, tuple[float, ...]]) -> dict[Channels, tuple[float, ...]]:
        made = dict(table)
        for new, source in self.sources.items():
            made |= {replace(each, tensor=new): found for each, found in table.items() if each.tensor == source}
        return made


def _reads_channels(graph: Graph, reader: Symbol, source: Symbol, axis: int) -> bool:
    """Whether a layer sums over these channels of its data, by a weight that factors can go into."""
    if not has_rows(reader) or reader.inputs[0] is not source or source in reader.inputs[1:]:
        return False
    values: list[Array | None] = [graph.value(each) for each in reader.inputs[1:]]
    return reader.operator.data_channel_axis(source.type.rank) == axis > 0 and all(v is not None for v in values)


def _is_idle(graph: Graph, name: str) -> bool:
    return bool((graph.parameters[graph.by_name[name].inputs[1].name] == 1).all())

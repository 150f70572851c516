"""The layers that make most of the error, where simulating each layer would take too long: by halving.

All layers are simulated in a few runs of neighbours; the run that makes most is halved, as long as there is time, until
its worst layers stand alone. Errors of layers nearly add up, so that a run that makes little holds no layer that makes
much, unless its errors cancel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mrt.quantization.cost import network_operations
from mrt.quantization.simulation.sensitivity import GATED
from mrt.quantization.simulation.simulation import Simulation, Trial, mean_error
from mrt.report.facts import ErrorGroup, ErrorTotals, Shares
from mrt.report.layers import FloatLayer
from mrt.report.measure.numbers import known, rounded
from mrt.symbol import Array

FIRST = 4
"""Runs at first."""
LEAST_TRIALS = 16
"""Fewer find nothing."""


@dataclass(frozen=True, eq=False)
class _Rounded:
    """What is rounded for layers: places of tensors, and weights, by name."""

    sites: frozenset[str]
    weights: frozenset[str]

    def __or__(self, other: _Rounded) -> _Rounded:
        return _Rounded(self.sites | other.sites, self.weights | other.weights)


class _Halving:
    """errors: by layers, the errors at the outputs where they are rounded. left: trials that there is time for."""

    def __init__(
        self,
        simulation: Simulation,
        corrections: Mapping[str, Array],
        owner: Mapping[str, FloatLayer],
        trials: int,
    ) -> None:
        self._simulation, self._corrections = simulation, corrections
        self.left = trials
        self.errors: dict[tuple[int, ...], Array] = {}
        self._rounded: dict[int, _Rounded] = {}
        for name, each in _roundings(simulation):
            if name in owner:
                place = owner[name].place
                self._rounded[place] = self._rounded.get(place, _Rounded(frozenset(), frozenset())) | each

    def run(self) -> None:
        """Until there is no time for another halving, or every layer stands alone."""
        places = sorted(self._rounded)
        each = max(-(-len(places) // FIRST), 1)
        self._measure([tuple(places[first : first + each]) for first in range(0, len(places), each)])
        while self.left >= 2:
            groups = [group for group in self.errors if len(group) > 1]
            if not groups:
                return
            worst = max(groups, key=lambda group: (mean_error(self.errors[group]), -group[0]))
            middle = len(worst) // 2
            del self.errors[worst]
            self._measure([worst[:middle], worst[middle:]])

    def _measure(self, groups: Sequence[tuple[int, ...]]) -> None:
        found = self._simulation.output_errors([self.trial(self._of(group)) for group in groups])
        self.errors |= dict(zip(groups, found, strict=True))
        self.left -= len(groups)

    def _of(self, group: Sequence[int]) -> _Rounded:
        found = _Rounded(frozenset(), frozenset())
        for place in group:
            found |= self._rounded[place]
        return found

    def trial(self, chosen: _Rounded | None) -> Trial:
        """chosen: what is rounded; None for all."""
        if chosen is None:
            return Trial(corrections=self._corrections, samples=1)
        given = {name: each for name, each in self._corrections.items() if name in chosen.weights}
        return Trial(chosen.sites, corrections=given, samples=1, weights=chosen.weights)

    def weights_alone(self, place: int) -> Array | None:
        """The errors where only the weights of a layer are rounded; None where it has none."""
        weights = self._rounded[place].weights
        if not weights:
            return None
        found: Array = self._simulation.output_errors([self.trial(_Rounded(frozenset(), weights))])[0]
        return found


def _roundings(simulation: Simulation) -> list[tuple[str, _Rounded]]:
    """By the name that a layer knows it by, all that is rounded."""
    found = [(name, _Rounded(frozenset(), frozenset({name}))) for name in simulation.weights]
    for site in simulation.sites:
        name = site.tensor.name if site.edge is None else site.decided_by
        found.append((name, _Rounded(frozenset({site.name}), frozenset())))
    return found


def _shares(errors: Array, weights: Array | None, whole: Array) -> Shares:
    """errors: of a layer. weights: where only its weights are rounded; None where that is not known. What they leave of
    the layer's share is told as that of its output."""
    total = mean_error(whole) or 1.0
    share = mean_error(errors) / total
    part = None if weights is None else min(mean_error(weights) / total, share)
    return Shares(
        output=rounded(share - (part or 0.0)),
        weights=None if part is None else rounded(part),
        alone=rounded(share),
        by_output=[known(float(error / all_)) if all_ else None for error, all_ in zip(errors, whole, strict=True)],
    )


def bounded_shares(
    simulation: Simulation,
    corrections: Mapping[str, Array],
    owner: Mapping[str, FloatLayer],
    operations: float,
    source: str,
) -> tuple[dict[int, Shares], ErrorTotals]:
    """The shares of the layers that could be told apart, by place, and what they are of, with the others in groups.

    simulation: with gates. operations: what all may take, in multiplications, of one sample each.
    """
    trials = max(int(operations / (GATED * network_operations(simulation.plan.graph))), LEAST_TRIALS)
    search = _Halving(simulation, corrections, owner, trials - trials // 4)
    search.run()
    everything = search.trial(None)
    whole = simulation.output_errors([everything])[0]
    total = mean_error(whole)
    shares, groups = dict[int, Shares](), list[ErrorGroup]()
    for group, errors in sorted(search.errors.items(), key=lambda item: (-mean_error(item[1]), item[0])):
        if len(group) > 1:
            groups.append(ErrorGroup(layers=list(group), share=rounded(mean_error(errors) / (total or 1.0))))
        else:
            weights = search.weights_alone(group[0]) if len(shares) < trials // 4 else None
            shares[group[0]] = _shares(errors, weights, whole)
    told = ErrorTotals(
        samples=simulation.sample_count(everything),
        outputs=list(simulation.outputs),
        whole=[known(float(error), 6) for error in whole],
        alone=rounded(sum(each.alone for each in shares.values()) + sum(group.share for group in groups)),
        source=source,
        groups=groups,
    )
    return shares, told

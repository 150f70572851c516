"""More bits for the few activations that cause most of the outputs' error, found together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mrt.calibration import Calibration, Needs
from mrt.errors import QuantizationError
from mrt.messages import counted
from mrt.quantization.algorithms.algorithm import Samples, WidthChoice, algorithm
from mrt.quantization.algorithms.bias_correction import means_read_by_reductions
from mrt.quantization.algorithms.fast_bias_correction import shifts_of
from mrt.quantization.cost import elements, multiplications, network_operations, widening
from mrt.quantization.options import (
    MOST_BITS,
    ActivationConfig,
    ActivationOverride,
    Override,
    QuantizationConfig,
)
from mrt.quantization.simulation.rounded_graph import Site, measured
from mrt.quantization.simulation.simulation import Simulation, Trial, planned_weights, simulation_of
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Array, Graph, Symbol

MORE = 4
"""How many bits more a tensor gets: its error falls to 1/256."""
STAYS = 1 / 8
"""Where so much of a tensor's error would stay it gets twice as many: small values count there, such as the noise of a
pause beside speech, that are 0 in all fewer."""
REMAINS = 1e-6
"""A tensor that no product reads gets twice as many too where more than this share of the signal would stay, 60 dB: the
sums of a transformer, whose few large channels leave 12 bits little for the others. Words are as wide for 16 bits."""
WORTH = 3.0
"""A tensor gets them where its share of the error is so many times the share that it adds to the operations."""
GOOD, ENOUGH, FINE = 1e-3, 1e-4, 1e-5
"""The errors, as shares of the signal, from which on only what is worth it is taken, what is as good as free, and
nothing: 30, 40 and 50 dB."""
FREE = 3e-4
"""What adds so much of the operations is as good as free: the gates and states of recurrent layers, whose errors add
up over the steps."""
MOST_COST = 1.5
"""The operations that a network may take, those of 8 bits being 1."""
LEAST_SHARE, LEAST_NEEDED_SHARE = 0.005, 0.03
"""A tensor that causes less of the error that is left stays as it is: one that is worth it, and any other."""
LEAST_GAIN = 0.1
"""Decibels that a longer list must gain to be taken."""
PARTS = 4
"""Beginnings of the list are tried in steps of this part of it."""
TRIED_OPERATIONS, TRIED_TOGETHER = 2e11, 6e10
"""What trying all tensors, and beginnings of the list, may take: it bounds the samples on which they are tried, and
how all tensors are."""


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A tensor that may get more bits. sites: the names of those that it decides. alone: the error, as a share of the
    signal, that its rounding makes alone. cost: the operations added, as a share of the network's. is_multiplied:
    whether a layer or a product of tensors reads it. more: how many bits it gets."""

    symbol: Symbol
    bits: int
    sites: frozenset[str]
    alone: float
    cost: float
    is_multiplied: bool
    more: int = MORE


@algorithm("auto")
class SensitiveTensors(WidthChoice):
    """Lifts the tensors by the error that each makes alone, as a set, as long as operations allow.

    One tensor lifted alone may gain nothing where several cause the error. So all are measured alone: the network, its
    weights rounded, with that tensor rounded only, against the same with none; the errors add up. In a large network
    most errors are compared near where they are made (`Simulation.errors_alone`). Beginnings of the list, by error for
    an operation, are then tried whole on samples held apart, and the best of them is taken.
    """

    def needs(self, graph: Graph) -> Needs:
        return means_read_by_reductions(graph)

    def values(self, graph: Graph) -> tuple[Symbol, ...]:
        return measured(graph)

    def choose(
        self, graph: Graph, observed: Calibration, config: QuantizationConfig, samples: Samples
    ) -> tuple[QuantizationConfig, tuple[str, ...]]:
        simulation = simulation_of(graph, observed, config, samples)
        _, weights = planned_weights(graph, observed, config, samples)
        corrections = shifts_of(simulation.plan.graph, observed, weights)
        del weights
        exact = Trial(frozenset(), corrections=corrections)
        ordered = _with_enough(simulation, exact, _ordered(_measured(simulation, exact), simulation.error(exact)))
        for length, before, after in _beginnings(simulation, corrections, ordered):
            chosen = ordered[:length]
            widened = _widened(config, chosen)
            if _fits(graph, observed, widened, samples):
                return widened, _notes(chosen, before, after)
        return config, ()


def _measured(simulation: Simulation, exact: Trial) -> list[_Candidate]:
    """All tensors whose bits may rise, with the error that each makes alone. exact: rounds none of them."""
    plan = simulation.plan
    by_tensor: dict[str, list[Site]] = {}
    for site in simulation.sites:
        if site.edge is not None:
            by_tensor.setdefault(site.decided_by, []).append(site)
    graph = plan.graph
    free = [(graph.by_name[name], sites) for name, sites in by_tensor.items() if _is_free(plan, name)]
    each = network_operations(graph)
    few = simulation.affordable(len(free), TRIED_OPERATIONS)
    named = [frozenset(site.name for site in sites) for _, sites in free]
    trials = [Trial(names, corrections=exact.corrections, samples=few) for names in named]
    is_large = each * len(free) > TRIED_OPERATIONS
    errors = simulation.errors_alone(trials, exact) if is_large else simulation.errors(trials, exact)
    return [
        _Candidate(
            symbol, _options(plan, symbol).bits, names, error, _cost(graph, sites) / each, _is_multiplied(graph, sites)
        )
        for (symbol, sites), names, error in zip(free, named, errors, strict=True)
    ]


def _is_free(plan: Plan, name: str) -> bool:
    """Whether a tensor's bits are for the algorithm to choose."""
    options = plan.tensors[name].options
    return (
        isinstance(options, ActivationConfig)
        and options.bits < MOST_BITS
        and not plan.config.overrides_activation(name)
    )


def _options(plan: Plan, symbol: Symbol) -> ActivationConfig:
    options = plan[symbol].options
    if not isinstance(options, ActivationConfig):
        raise ValueError(f"{symbol.name} has no options of its own")
    return options


def _readers(graph: Graph, sites: Sequence[Site]) -> set[Symbol]:
    return {graph.by_name[site.edge[0]] for site in sites if site.edge is not None}


def _is_multiplied(graph: Graph, sites: Sequence[Site]) -> bool:
    return any(multiplications(reader) for reader in _readers(graph, sites))


def _cost(graph: Graph, sites: Sequence[Site]) -> float:
    """The operations that wider data of these sites adds."""
    return widening(_readers(graph, sites)) + sum(elements(site.tensor) for site in sites)


def _ordered(candidates: Sequence[_Candidate], rest: float) -> list[_Candidate]:
    """Those to be lifted, in the order in which they pay. rest: the error of all that is not a candidate's."""
    remaining = rest + sum(each.alone for each in candidates)
    room, taken = MOST_COST - 1, []
    for each in sorted(candidates, key=lambda each: (-each.alone / (each.cost + 1e-3), each.symbol.name)):
        is_worth = each.alone / remaining >= WORTH * each.cost if remaining else False
        least = LEAST_SHARE if is_worth else LEAST_NEEDED_SHARE
        limit = FINE if each.cost <= FREE else ENOUGH if is_worth else GOOD
        is_needed = each.alone >= least * remaining and remaining > limit
        if not is_needed or each.cost > room:
            continue
        taken.append(each)
        room -= each.cost
        remaining -= each.alone
    return taken


def _with_enough(simulation: Simulation, exact: Trial, ordered: Sequence[_Candidate]) -> list[_Candidate]:
    """The candidates with twice the bits where MORE would leave much of the error that each makes alone, or much of
    the signal in a tensor that no product reads."""
    large = [each for each in ordered if each.alone > GOOD]
    few = simulation.affordable(max(len(large), 1), TRIED_OPERATIONS)
    tried = [each for each in large if not _remains(each)]
    trials = [Trial(each.sites, dict.fromkeys(each.sites, MORE), exact.corrections, samples=few) for each in tried]
    left = dict(zip((each.symbol for each in tried), simulation.errors(trials, exact), strict=True))

    def wants_more(each: _Candidate) -> bool:
        return _remains(each) or left.get(each.symbol, 0.0) > STAYS * each.alone

    return [replace(each, more=2 * MORE) if wants_more(each) else each for each in ordered]


def _remains(each: _Candidate) -> bool:
    """Whether MORE would leave much of the signal in a tensor that no product reads, whatever a trial says."""
    return not each.is_multiplied and each.alone * 4.0**-MORE > REMAINS


def _beginnings(
    simulation: Simulation, corrections: Mapping[str, Array], ordered: Sequence[_Candidate]
) -> list[tuple[int, float, float]]:
    """The lengths of beginnings of the list that lower the error, the best first, with the errors before and behind."""
    lengths = sorted({0, *(math.ceil(len(ordered) * part / PARTS) for part in range(PARTS + 1))})
    few = simulation.affordable(len(lengths), TRIED_TOGETHER)
    finer = [{name: _more(each) for each in ordered[:length] for name in each.sites} for length in lengths]
    errors = simulation.errors([Trial(finer=each, corrections=corrections, samples=few) for each in finer])
    best: list[tuple[int, float, float]] = []
    least = errors[0] * 10 ** (-LEAST_GAIN / 10)
    for length, error in zip(lengths[1:], errors[1:], strict=True):
        if error < least:
            best.insert(0, (length, errors[0], error))
            least = error * 10 ** (-LEAST_GAIN / 10)
    return best


def _fits(graph: Graph, observed: Calibration, config: QuantizationConfig, samples: Samples) -> bool:
    """Whether everything fits 32 bits."""
    try:
        planned_weights(graph, observed, config, samples)
    except QuantizationError:
        return False
    return True


def _more(each: _Candidate) -> int:
    return min(each.more, MOST_BITS - each.bits)


def _widened(config: QuantizationConfig, chosen: Sequence[_Candidate]) -> QuantizationConfig:
    """The config with the bits of these tensors as overrides."""
    overrides = dict(config.overrides)
    for each in chosen:
        override = Override(activation=ActivationOverride(bits=each.bits + _more(each)))
        overrides[each.symbol.name] = override.over(overrides.get(each.symbol.name))
    return config.model_copy(update={"overrides": overrides})


def _notes(chosen: Sequence[_Candidate], before: float, after: float) -> tuple[str, ...]:
    if not chosen:
        return ()
    cost = 100 * sum(each.cost for each in chosen)
    total = f"{_decibels(before)} dB become {_decibels(after)} dB for {cost:.2g} % more operations"
    each = (
        f"{c.symbol.name} ({c.symbol.op}): {c.bits + _more(c)} bits; rounded alone to {c.bits} it leaves "
        f"{_decibels(c.alone)} dB"
        for c in chosen
    )
    return (f"{counted(len(chosen), 'tensor')} with more bits: {total}, by simulation on held-apart samples", *each)


def _decibels(error: float) -> str:
    return f"{-10 * math.log10(error):.1f}" if error > 0 else "all"

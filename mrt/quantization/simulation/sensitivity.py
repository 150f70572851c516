"""Where a quantization loses accuracy: the error at the outputs that each weight and each rounded tensor makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mrt.progress import Reporter
from mrt.quantization.options import ActivationConfig, InputConfig
from mrt.quantization.simulation.rounded_graph import Site
from mrt.quantization.simulation.simulation import Simulation, Trial, mean_error
from mrt.quantization.tensor_plan import Plan, TensorPlan
from mrt.symbol import Array

WEIGHT, TENSOR, OUTPUT = "weight", "tensor", "output"
"""What is rounded: the weight of a layer, what operators take, or a tensor once more as the network gives it."""
TRIED_OPERATIONS = 5e11
"""What all trials together may take: it bounds the samples on which they are run."""
AT_ONCE = 8
"""Roundings that are tried between two tellings of the progress."""
GATED = 2
"""How many times the operations of a network its simulation with gates takes, at most."""


@dataclass(frozen=True, eq=False)
class Loss:
    """What one rounding costs.

    name, operator: of the layer whose weight it is, or of the tensor whose bits decide how fine the rounding is. what:
    WEIGHT, TENSOR or OUTPUT. bits: those that are asked for. Errors are energies as shares of the outputs' signal, each
    (outputs,), NaN of an output without signal. alone: where nothing else is rounded. so_far: where all before it in
    the network is rounded too; NaN where that was not asked for. share: of `alone` in the sum of all, 0 where nothing
    is lost.
    """

    name: str
    operator: str
    what: str
    bits: int
    alone: Array
    so_far: Array
    share: float


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """The losses, the largest first. outputs: the tensors whose errors they are. whole: with all rounded, (outputs,).

    samples: how many were run, of those held apart from what calibration fits.
    """

    losses: tuple[Loss, ...]
    outputs: tuple[str, ...]
    whole: Array
    samples: int


@dataclass(frozen=True, eq=False)
class _Rounding:
    """Something that is rounded. place: in the network. sites, weights: what a trial rounds for it."""

    name: str
    what: str
    bits: int
    place: int
    sites: frozenset[str] = field(default_factory=frozenset)
    weights: frozenset[str] = field(default_factory=frozenset)


def sensitivity_of(
    simulation: Simulation,
    corrections: Mapping[str, Array],
    report: Reporter,
    operations: float = TRIED_OPERATIONS,
    is_alone: bool = False,
) -> Sensitivity:
    """The losses of a simulated quantization.

    simulation: with gates. corrections: by the name of a reduction, what is added to its output; it counts with its
    weight. operations: that all trials may take. is_alone: whether only errors alone are asked for, which takes half.
    """
    roundings = sorted((*_weights(simulation), *_tensors(simulation)), key=lambda each: each.place)
    each_time = 1 if is_alone else 2
    few = simulation.affordable(each_time * GATED * max(len(roundings), 1), operations)
    tried = [
        (_trial([each], corrections, few), _trial(roundings[: number + 1], corrections, few))[:each_time]
        for number, each in enumerate(roundings)
    ]
    errors: list[Array] = []
    with report.progress("sensitivity", len(tried), "roundings") as progress:
        for first in range(0, len(tried), AT_ONCE):
            found = simulation.output_errors([one for trials in tried[first : first + AT_ONCE] for one in trials])
            errors += [_pair(found[k : k + each_time]) for k in range(0, len(found), each_time)]
            progress(len(errors))
    whole = Trial(corrections=corrections, samples=few)
    losses = _losses(simulation.plan, roundings, errors)
    return Sensitivity(losses, simulation.outputs, simulation.output_errors([whole])[0], simulation.sample_count(whole))


def _pair(errors: Array) -> Array:
    """The error alone and the one so far, (2, outputs), of both or of the first."""
    return errors if len(errors) > 1 else np.concatenate([errors, np.full_like(errors, np.nan)])


def _losses(plan: Plan, roundings: Sequence[_Rounding], errors: Sequence[Array]) -> tuple[Loss, ...]:
    """errors: of each rounding, (2, outputs): alone, and with all before it."""
    total = sum(mean_error(alone) for alone, _ in errors)
    losses = []
    for each, (alone, so_far) in zip(roundings, errors, strict=True):
        share = mean_error(alone) / total if total else 0.0
        operator = "input" if plan.graph.by_name[each.name].is_variable else plan.graph.by_name[each.name].op
        losses.append(Loss(each.name, operator, each.what, each.bits, alone, so_far, share))
    return tuple(sorted(losses, key=lambda loss: -loss.share))


def _trial(roundings: Sequence[_Rounding], corrections: Mapping[str, Array], samples: int) -> Trial:
    """Only these are rounded."""
    weights = frozenset[str]().union(*(each.weights for each in roundings))
    return Trial(
        rounded=frozenset[str]().union(*(each.sites for each in roundings)),
        corrections={name: value for name, value in corrections.items() if name in weights},
        samples=samples,
        weights=weights,
    )


def _weights(simulation: Simulation) -> Iterator[_Rounding]:
    plan = simulation.plan
    for place, symbol in enumerate(plan.graph.symbols):
        if symbol.name in simulation.weights:
            given = plan[symbol.inputs[1]].constant
            width = plan.config.weight_of(symbol.name).bits
            bits = width if given is None else _width(int(given.integers.min()), int(given.integers.max()))
            yield _Rounding(symbol.name, WEIGHT, bits, place, weights=frozenset({symbol.name}))


def _tensors(simulation: Simulation) -> Iterator[_Rounding]:
    """Of the tensors that decide grids, and of the outputs, each with all of its sites."""
    plan = simulation.plan
    places = {symbol.name: place for place, symbol in enumerate(plan.graph.symbols)}
    grouped: dict[tuple[str, str], list[Site]] = {}
    for site in simulation.sites:
        key = (site.decided_by, TENSOR) if site.edge is not None else (site.tensor.name, OUTPUT)
        grouped.setdefault(key, []).append(site)
    for (name, what), sites in grouped.items():
        target = plan.tensors[name].output
        bits = _tensor_bits(plan.tensors[name]) if what == TENSOR else _width(target.lo, target.hi)
        yield _Rounding(name, what, bits, places[name], frozenset(site.name for site in sites))


def _tensor_bits(tensor: TensorPlan) -> int:
    """The bits that a tensor is given: by the options, by the network, or as an input of integers."""
    options = tensor.fixed or tensor.options
    if isinstance(options, ActivationConfig):
        return options.bits
    return _width(*(options.limits if isinstance(options, InputConfig) else (options.lo, options.hi)))


def _width(lo: int, hi: int) -> int:
    """The bits that number the integers of an interval."""
    return max((hi - lo).bit_length(), 1)

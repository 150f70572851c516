"""What `mrt tune` may change of a layer: each choice simulated, the rest of the network being as it is.

The network is simulated whole, with all that it rounds, once for every choice of the layers that make most of the
error. Which layers and how many samples follows from the size of the network alone, never from the clock, so that the
same network gets the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import yaml

from mrt.errors import MRTError
from mrt.quantization.algorithms.fast_bias_correction import shifts_of
from mrt.quantization.cost import added_operations, elements, network_operations, operations, widening
from mrt.quantization.expand import plan_graph
from mrt.quantization.options import ActivationConfig, ActivationOverride, ChannelGranularity, Override, Quantizer
from mrt.quantization.simulation.rounded_graph import Site, root_of
from mrt.quantization.simulation.simulation import Simulation, Trial
from mrt.quantization.tensor_plan import Plan
from mrt.report.facts import Choice, Choices, Shares
from mrt.report.layers import FloatLayer, find_layers
from mrt.report.measure.numbers import rounded
from mrt.report.measure.other_weights import OtherWeight, other_weights, weighted_layers, with_layer_moments
from mrt.report.measure.subject import Subject
from mrt.report.measure.weights import layer_weights
from mrt.symbol import Array, Symbol

LAYERS, CHOICES = 5, 12
"""Layers whose choices are simulated, those with the largest shares; choices of one, about."""
OPERATIONS, LONGEST = 1e11, 4e11
"""What all simulations may take, in multiplications, which bounds the samples; and the layers, where one sample takes
more: about 5 and 20 seconds."""
MOST_OPERATORS = 2000
"""Of a network that is compiled once more for this."""
WIDTHS = (10, 12, 16)
"""Bits of tensors that are tried."""
NARROW = 8
OPERATIONS_A_SECOND = 2e10
"""Multiplications that are simulated."""
LEAST = 1e-30
"""An error below which none is told."""


@dataclass(frozen=True, eq=False)
class _Setting:
    """The network as it is, simulated. plan: as it is quantized; layers: those whose choices are tried, which `known`
    has by name; others: by layer and number, the options and weights that may stand instead."""

    subject: Subject
    plan: Plan
    layers: Sequence[FloatLayer]
    simulation: Simulation
    weights: Mapping[str, Array]
    others: Mapping[str, Sequence[OtherWeight]]
    base: Trial

    @property
    def known(self) -> Mapping[str, Symbol]:
        return self.plan.graph.by_name

    def sites(self, name: str) -> list[Site]:
        """Where the bits of a tensor say how fine the grid is."""
        return [site for site in self.simulation.sites if site.edge is not None and site.decided_by == name]


@dataclass(frozen=True, eq=False)
class _Tried:
    """A choice and its trial; the other fields as in `Choice`. operations: added, for a sample."""

    layer: int
    what: str
    name: str
    option: str
    override: Override
    trial: Trial
    operations: float = 0.0
    parameter_bytes: int = 0
    tensor_bytes: int = 0


def measured_choices(
    subject: Subject, shares: Mapping[int, Shares], sample_seconds: float | None
) -> tuple[Choices, dict[int, list[Choice]]]:
    """What every choice makes of the outputs, by the place of the layer; and what that rests on.

    sample_seconds: of one sample, compiled; None where that was not measured.
    Raises ValueError where there is nothing to simulate on, or the network is too large for a single layer.
    """
    plan = plan_graph(subject.prepared, subject.observed.ranges, subject.chosen).plan
    places, left_out = _chosen_layers(subject, plan, shares)
    setting, refused = _setting(subject, plan, [subject.layers[place] for place in places])
    tried = list(_tried(setting, left_out))
    simulation, trials = setting.simulation, [setting.base, *(each.trial for each in tried)]
    few = simulation.affordable(_work(setting) * len(trials), OPERATIONS)
    with subject.report.progress("try choices", len(trials), "choices") as progress:
        errors = simulation.errors([replace(trial, samples=few) for trial in trials])
        progress(len(trials))
    operations = network_operations(plan.graph)
    found: dict[int, list[Choice]] = {place: [] for place in places}
    for one, error in zip(tried, errors[1:], strict=True):
        found[one.layer].append(_choice(one, errors[0], error, operations, sample_seconds))
    told = Choices(
        samples=simulation.sample_count(replace(setting.base, samples=few)),
        source="data.calibration",
        sqnr=_decibels(errors[0]),
        layers=places,
        left_out=[*left_out, *refused],
    )
    return told, {place: sorted(own, key=lambda each: -each.gain) for place, own in found.items()}


def _chosen_layers(subject: Subject, plan: Plan, shares: Mapping[int, Shares]) -> tuple[list[int], list[str]]:
    """The places of the layers with the largest shares, and why there are no more of them."""
    if subject.calibration is None:
        raise ValueError("there is no calibration data to simulate on")
    ranked = sorted((place for place, each in shares.items() if each.alone), key=lambda place: -shares[place].alone)
    if not ranked:
        raise ValueError("no rounding was found to make an error")
    if len(plan.graph.operators) > MOST_OPERATORS:
        raise ValueError(f"{len(plan.graph.operators)} operators would be compiled once more, too many")
    affordable = int(LONGEST / (CHOICES * network_operations(plan.graph)))
    if not affordable:
        seconds = CHOICES * network_operations(plan.graph) / OPERATIONS_A_SECOND
        raise ValueError(f"to simulate the choices of one layer would take about {seconds:.0f} s")
    wanted = min(LAYERS, len(ranked))
    less = [] if affordable >= wanted else [f"only {affordable} of the {wanted} worst layers, because of time"]
    return ranked[: min(wanted, affordable)], less


def _setting(subject: Subject, plan: Plan, layers: Sequence[FloatLayer]) -> tuple[_Setting, list[str]]:
    """And why some options of weights are not tried."""
    samples = subject.calibration
    if samples is None:
        raise ValueError("there is no calibration data to simulate on")
    base = layer_weights(find_layers(plan.graph), plan.graph, subject.model)
    weighted = weighted_layers(plan.graph, [layer.head.name for layer in layers if layer.head.name in base])
    observed, count = with_layer_moments(subject.prepared, weighted, subject.observed, subject.chosen, samples)
    others, refused = other_weights(plan.graph, weighted, observed, subject.chosen, count)
    weights = {name: weight.real for name, weight in base.items()}
    given = {name: [other.weight for other in found] for name, found in others.items() if found}
    simulation = Simulation(_by_channel(subject, plan, layers), weights, samples, others=given)
    corrections = {name: each for name, each in subject.model.corrections.items() if name in plan.graph.by_name}
    trial = Trial(plan=plan, corrections=corrections)
    return _Setting(subject, plan, layers, simulation, weights, others, trial), refused


def _by_channel(subject: Subject, plan: Plan, layers: Sequence[FloatLayer]) -> Plan:
    """The plan whose sites the simulation has: of the layers each channel by itself, where that leaves other readers
    what they take. Sites of channels serve a plan with one scale too."""
    names = [root.name for layer in layers if (root := _root(layer, plan)) is not None]
    override = Override(activation=ActivationOverride(granularity=ChannelGranularity(channel=1)))
    try:
        found = _changed_plan(subject, dict.fromkeys(names, override))
    except MRTError:
        return plan
    return found if _serves(found, plan) else plan


def _serves(sites: Plan, plan: Plan) -> bool:
    """Whether what the sites of one plan round alike, another rounds alike, and neither rounds more."""
    for name, tensor in plan.tensors.items():
        other = sites.tensors[name]
        pairs = [(other.edges.get(edge), target) for edge, target in tensor.edges.items()]
        pairs.append((other.output, tensor.output))
        if any((theirs is None) != (own is None) for theirs, own in pairs):
            return False
        if len(set(pairs)) != len({theirs for theirs, _ in pairs}):
            return False
    return True


def _changed_plan(subject: Subject, overrides: Mapping[str, Override]) -> Plan:
    chosen, merged = subject.chosen, dict(subject.chosen.overrides)
    for name, override in overrides.items():
        merged[name] = override.over(merged.pop(name, None))
    config = chosen.model_copy(update={"overrides": merged})
    return plan_graph(subject.prepared, subject.observed.ranges, config).plan


def _root(layer: FloatLayer, plan: Plan) -> Symbol | None:
    """The tensor whose bits are those of what the layer gives; None where they are given."""
    symbol = plan.graph.by_name.get(layer.end.name)
    if symbol is None:
        return None
    root = root_of(symbol)
    tensor = plan.tensors[root.name]
    return root if isinstance(tensor.options, ActivationConfig) and tensor.fixed is None else None


def _tried(setting: _Setting, left_out: list[str]) -> Iterator[_Tried]:
    for layer in setting.layers:
        own = _root(layer, setting.plan)
        if own is not None:
            yield from _wider(setting, layer, "output", own)
            yield from _other_quantizers(setting, layer, own, left_out)
        reads = [setting.subject.layers[place] for place in _reads(layer, setting.subject)]
        for root in dict.fromkeys(root for each in reads if (root := _root(each, setting.plan)) is not None):
            if root is not own:
                yield from list(_wider(setting, layer, "input", root))[-1:]
        yield from _weights(setting, layer)


def _reads(layer: FloatLayer, subject: Subject) -> list[int]:
    owners = (subject.owner.get(source.name) for symbol in layer.symbols for source in symbol.inputs)
    return sorted({owner.place for owner in owners if owner is not None and owner is not layer})


def _wider(setting: _Setting, layer: FloatLayer, what: str, root: Symbol) -> Iterator[_Tried]:
    """More bits for a tensor: grids that are so much finer."""
    sites, config = setting.sites(root.name), setting.subject.chosen.activation_of(root.name)
    if not sites:
        return
    readers = {setting.known[site.edge[0]] for site in sites if site.edge is not None}
    values = sum(elements(tensor) for tensor in {site.tensor for site in sites})
    for bits in (width for width in WIDTHS if width > config.bits):
        grows = config.bits <= NARROW < bits
        trial = replace(setting.base, finer={site.name: bits - config.bits for site in sites})
        yield _Tried(
            layer.place,
            what,
            root.name,
            f"{bits} bits",
            Override(activation=ActivationOverride(bits=bits)),
            trial,
            operations=widening(readers) + values if grows else 0.0,
            tensor_bytes=values if grows else 0,
        )


def _other_quantizers(setting: _Setting, layer: FloatLayer, root: Symbol, left_out: list[str]) -> Iterator[_Tried]:
    """Another kind of quantizer, and scales for each channel; none that change no grid."""
    config, subject = setting.subject.chosen.activation_of(root.name), setting.subject
    kinds: tuple[Quantizer, ...] = ("symmetric", "affine")
    options = [
        (f"{'an' if kind == 'affine' else 'a'} {kind} quantizer", ActivationOverride(quantizer=kind))
        for kind in kinds
        if kind != config.quantizer
    ]
    if config.granularity == "layer":
        options.append(("a scale for each channel", ActivationOverride(granularity=ChannelGranularity(channel=1))))
    for words, activation in options:
        override = Override(activation=activation)
        try:
            plan = _changed_plan(subject, {root.name: override})
        except MRTError as error:
            left_out.append(f"{root.name}, {words}: {' '.join(str(error).split())}")
            continue
        sites = setting.sites(root.name)
        if all(plan[site.tensor].edges == setting.plan[site.tensor].edges for site in sites):
            continue
        if not _serves(setting.simulation.plan, plan):
            left_out.append(f"{root.name}, {words}: other tensors would be rounded elsewhere too")
            continue
        added = _added_by_groups(setting, sites) if activation.granularity is not None else 0.0
        yield _Tried(
            layer.place, "output", root.name, words, override, replace(setting.base, plan=plan), operations=added
        )


def _added_by_groups(setting: _Setting, sites: Sequence[Site]) -> float:
    readers = {setting.known[site.edge[0]] for site in sites if site.edge is not None}
    sums = [reader for reader in readers if reader.operator.weight_channel_axis is not None]
    return sum(added_operations(reader, range(reader.inputs[0].shape[1])) for reader in sums)


def _weights(setting: _Setting, layer: FloatLayer) -> Iterator[_Tried]:
    """Other weights; what bias correction adds makes up for what the rounding of these takes."""
    name = layer.head.name
    for number, other in enumerate(setting.others.get(name, ())):
        reduction, size = setting.known[name], other.weight.size
        bits = other.override.bits or 0
        grows = bits > NARROW >= setting.subject.chosen.weight_of(name).bits
        groups = other.groups(reduction)
        wider = widening({reduction}) if grows else 0.0
        yield _Tried(
            layer.place,
            "weights",
            name,
            other.option,
            Override(weight=other.override),
            replace(setting.base, instead={name: number}, corrections=_corrected(setting, name, other.weight)),
            operations=wider + (added_operations(reduction, groups) if groups else 0),
            parameter_bytes=size if grows else 0,
        )


def _corrected(setting: _Setting, name: str, weight: Array) -> Mapping[str, Array]:
    corrections = dict(setting.base.corrections)
    if name in corrections:
        graph, observed = setting.plan.graph, setting.subject.observed
        own, other = (shifts_of(graph, observed, {name: each})[name] for each in (setting.weights[name], weight))
        corrections[name] = corrections[name] - own + other
    return corrections


def _work(setting: _Setting) -> int:
    """What simulating a sample takes, in networks."""
    added = sum(len(found) * operations(setting.known[name]) for name, found in setting.others.items())
    return 1 + math.ceil(added / network_operations(setting.plan.graph))


def _choice(tried: _Tried, before: float, after: float, operations: float, seconds: float | None) -> Choice:
    share = tried.operations / operations
    override = tried.override.model_dump(mode="json", exclude_unset=True)
    return Choice(
        what=tried.what,
        name=tried.name,
        option=tried.option,
        code=yaml.safe_dump({tried.name: override}, default_flow_style=True, width=10_000).strip()[1:-1],
        sqnr=_decibels(after),
        gain=rounded(10 * math.log10(max(before, LEAST) / max(after, LEAST))),
        operations=rounded(share),
        parameter_bytes=tried.parameter_bytes,
        tensor_bytes=tried.tensor_bytes,
        seconds=None if seconds is None else rounded(share * seconds),
    )


def _decibels(error: float) -> float | None:
    """The SQNR of an error, a share of the signal; None where there is no error."""
    return rounded(-10 * math.log10(error)) if error > 0 else None

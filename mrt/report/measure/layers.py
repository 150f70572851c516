"""All that is told of each layer, put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mrt.evaluation import Counterpart
from mrt.report.facts import Choice, Layer, LayerSqnr, Shares
from mrt.report.layers import FloatLayer
from mrt.report.measure.bits import bits_of
from mrt.report.measure.described import described
from mrt.report.measure.numbers import known, rounded
from mrt.report.measure.proven import IntegerLayers, bytes_of, headroom_of, rescaling_of
from mrt.report.measure.subject import Subject
from mrt.report.measure.walk import LayerWalk, form_facts
from mrt.report.measure.weights import LayerWeight


@dataclass(frozen=True, eq=False)
class Found:
    """What was measured. walk: None where there were no samples. shares, seconds,
    choices: by the place of a layer."""

    integer: IntegerLayers
    forms: Mapping[int, Counterpart]
    weights: Mapping[str, LayerWeight]
    walk: LayerWalk | None
    shares: Mapping[int, Shares] = field(default_factory=dict)
    seconds: Mapping[int, float] = field(default_factory=dict)
    choices: Mapping[int, list[Choice]] = field(default_factory=dict)


def layer_facts(subject: Subject, found: Found) -> list[Layer]:
    """Every layer, in order, with all that was found of it."""
    total = sum(found.seconds.values())
    return [_layer(layer, subject, found, total) for layer in subject.layers]


def _layer(layer: FloatLayer, subject: Subject, found: Found, total: float) -> Layer:
    place, weight, form = layer.place, found.weights.get(layer.head.name), found.forms.get(layer.place)
    seconds, seen = found.seconds.get(place), None if found.walk is None else found.walk.seen[place]
    return Layer(
        **described(layer, subject.graph, subject.owner),
        form=None if form is None else form_facts(form, subject.model),
        source=_source(layer, subject),
        bits=bits_of(layer, subject),
        shares=found.shares.get(place),
        sqnr=_sqnr(place, found.walk),
        headroom=headroom_of(place, found.integer),
        rescaling=rescaling_of(place, found.integer),
        correction=_correction(layer, subject),
        bytes=bytes_of(place, found.integer),
        seconds=None if seconds is None else rounded(seconds),
        time_share=rounded(seconds / total) if seconds is not None and total else None,
        values=None if seen is None else seen.facts,
        weights=None if weight is None else weight.facts,
        choices=found.choices.get(place),
    )


def _source(layer: FloatLayer, subject: Subject) -> str | None:
    """What the network as read calls it, where that is another name."""
    known_names = subject.original.by_name
    if layer.end.name in known_names:
        return None
    named = [s.name for s in reversed(layer.symbols) if s.name in known_names]
    return named[0] if named else None


def _sqnr(place: int, walk: LayerWalk | None) -> LayerSqnr | None:
    if walk is None:
        return None
    isolated, cumulative = (noises.get(place) for noises in (walk.isolated, walk.cumulative))
    return LayerSqnr(
        isolated=None if isolated is None else known(isolated.sqnr_db),
        cumulative=None if cumulative is None else known(cumulative.sqnr_db),
        worst_steps=None if cumulative is None else rounded(walk.seen[place].worst),
    )


def _correction(layer: FloatLayer, subject: Subject) -> list[float] | None:
    values = subject.model.corrections.get(layer.head.name)
    return None if values is None or not values.any() else [rounded(values.min()), rounded(values.max())]

"""Running a network in float and in integers, sample by sample, and looking at what each layer gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mrt.evaluation import Counterpart, Noise, counterparts, quantization_noise, sample_walk
from mrt.model import QuantizedModel
from mrt.report.facts import Form
from mrt.report.layers import FloatLayer, layer_by_symbol, weight_of
from mrt.report.measure.numbers import rounded
from mrt.report.measure.values import Seen
from mrt.report.measure.weights import LayerWeight
from mrt.symbol import Array, Graph, Symbol
from mrt.symbol.graph import evaluate_symbol
from mrt.symbol.rebatch import batch_of

Interval = tuple[int, int]


def forms_of(layers: Sequence[FloatLayer], model: QuantizedModel) -> dict[int, Counterpart]:
    """By place, the integer tensor that ends a layer; a layer without one is computed with what follows it.

    1. The last that stands for the tensor that the layer gives.
    2. Where that is made by cutting another, as a clip does, the last that stands for that: it is held to the ends of
       the clip where it is rescaled.
    """
    bounds = {name: (fact.lo, fact.hi) for name, fact in model.certificate.tensors.items()}
    ranges = {name: (found.lo, found.hi) for name, found in model.ranges.items()}
    tables = model.scales, model.zero_points
    exact = {form.origin: form for form in counterparts(model.graph, *tables, bounds, ranges)}
    last = {form.origin: form for form in counterparts(model.graph, *tables, bounds, {})}
    return {layer.place: form for layer in layers if (form := _form(layer, exact, last)) is not None}


def _form(layer: FloatLayer, exact: Mapping[str, Counterpart], last: Mapping[str, Counterpart]) -> Counterpart | None:
    symbol = layer.end
    if symbol.name in exact:
        return exact[symbol.name]
    while not symbol.is_variable and symbol.operator.keeps_scale and symbol is not layer.head:
        symbol = symbol.inputs[0]
        if symbol.name in last:
            return last[symbol.name]
    return None


def form_facts(form: Counterpart, model: QuantizedModel) -> Form:
    """What is told of an integer tensor that ends a layer."""
    fact, calibrated = model.certificate.tensors[form.name], model.ranges.get(form.origin)
    lo, hi = ((end - form.zero_point) * form.scale for end in (fact.lo, fact.hi))
    return Form(
        tensor=form.name,
        dtype=fact.dtype,
        scale=rounded(form.scale.min(), 6),
        scale_most=rounded(form.scale.max(), 6),
        scale_count=int(form.scale.size),
        zero_point=int(form.zero_point.reshape(-1)[0]),
        lo=fact.lo,
        hi=fact.hi,
        real_lo=rounded(lo.min(), 6),
        real_hi=rounded(hi.max(), 6),
        calibrated=None if calibrated is None else [rounded(calibrated.lo, 6), rounded(calibrated.hi, 6)],
    )


def channel_axes(layers: Sequence[FloatLayer], owner: Mapping[str, FloatLayer]) -> dict[int, int | None]:
    """The axis of each layer's output that counts channels: that of its head, or of a layer that it takes them from.

    Else it is axis 1 of images, and the last one of what has fewer axes.
    """
    found: dict[int, int | None] = {}
    for layer in layers:
        shape = layer.end.shape
        own = None if layer.head.is_variable else layer.head.channel_axis
        if own is None:
            taken = (owner[s.name] for symbol in layer.symbols for s in symbol.inputs if s.name in owner)
            own = next((found.get(other.place) for other in taken if other.end.shape == shape), None)
        if own is None and len(shape) > 1:
            own = 1 if len(shape) > 3 else len(shape) - 1
        found[layer.place] = own if own is not None and 0 < own < len(shape) else None
    return found


@dataclass(eq=False)
class LayerWalk:
    """What samples show of the layers of `graph`, which takes one sample at a time, or as many as it bakes in.

    forms: by place. weights: by the name of a head. samples: how many will be walked.
    isolated, cumulative: noise at each layer's output. seen: values by place. extremes: the least and the greatest
    value of every integer tensor.
    """

    graph: Graph
    layers: Sequence[FloatLayer]
    model: QuantizedModel
    forms: Mapping[int, Counterpart]
    weights: Mapping[str, LayerWeight]
    samples: int
    seen: dict[int, Seen] = field(default_factory=dict)
    isolated: dict[int, Noise] = field(default_factory=dict)
    cumulative: dict[int, Noise] = field(default_factory=dict)
    extremes: dict[str, Interval] = field(default_factory=dict)
    done: int = 0

    def __post_init__(self) -> None:
        self._owner = layer_by_symbol(self.layers)
        self._ends = {layer.end.name: layer for layer in self.layers}
        self._batch = batch_of(self.graph)
        self._rounded = self._rounded_weights()
        self._walk = sample_walk(self.model.graph)
        axes = channel_axes(self.layers, self._owner)
        self.seen = {
            layer.place: Seen(layer.end.shape, self.samples, axes[layer.place], self._range(layer.place))
            for layer in self.layers
        }

    def add(self, feeds: Mapping[str, Array]) -> tuple[list[Array], list[Array]]:
        """Looks at one sample; gives the outputs before post-processing, float and what the integers stand for."""
        ends: dict[str, Array] = {}
        outputs: dict[str, Array] = {}
        wanted = {symbol.name for symbol in self.graph.outputs}
        for symbol, value, moved in self._float_walk(feeds):
            if symbol.name in wanted:
                outputs[symbol.name] = value
            layer = self._ends.get(symbol.name)
            if layer is not None:
                ends[symbol.name] = value
                self.seen[layer.place].add(value)
                self._add_isolated(layer.place, value, moved)
        integers = self._integer_walk(self.model.quantize_inputs(feeds), ends)
        self.done += 1
        return [outputs[symbol.name] for symbol in self.graph.outputs], self.model.dequantize_outputs(integers)

    def _rounded_weights(self) -> dict[str, Array]:
        """By the name of the weight's parameter."""
        found = {}
        for layer in self.layers:
            symbol, weight = weight_of(layer, self.graph), self.weights.get(layer.head.name)
            if symbol is not None and weight is not None:
                found[layer.head.name] = weight.real.astype(symbol.dtype)
        return found

    def _range(self, place: int) -> tuple[float, float, float] | None:
        form = self.forms.get(place)
        if form is None:
            return None
        fact = self.model.certificate.tensors[form.name]
        lo, hi = ((end - form.zero_point) * form.scale for end in (fact.lo, fact.hi))
        return float(lo.min()), float(hi.max()), float(form.scale.max()) / 2

    def _float_walk(self, feeds: Mapping[str, Array]) -> Iterator[tuple[Symbol, Array, Array]]:
        """Every computed symbol, its value, and the value where its layer alone has rounded weights."""
        graph = self.graph
        values: dict[Symbol, Array] = {}
        moved: dict[Symbol, Array] = {}
        fed = graph.feed({name: _padded(x, self._batch) for name, x in feeds.items()})
        remaining = {symbol: len(graph.consumers[symbol]) for symbol in graph.symbols}
        for symbol in graph.symbols:
            if symbol.is_variable:
                given = graph.value(symbol)
                values[symbol] = fed[symbol.name] if given is None else given
            else:
                values[symbol] = evaluate_symbol(symbol, [values[source] for source in symbol.inputs])
                other = self._moved(symbol, values, moved)
                if other is not None:
                    moved[symbol] = other
            if symbol.name in self._owner:
                yield symbol, values[symbol], moved.get(symbol, values[symbol])
            for source in symbol.inputs:
                remaining[source] -= 1
                if not remaining[source]:
                    values.pop(source, None)
                    moved.pop(source, None)

    def _moved(self, symbol: Symbol, values: Mapping[Symbol, Array], moved: Mapping[Symbol, Array]) -> Array | None:
        layer = self._owner[symbol.name]
        if symbol is layer.head and symbol.name in self._rounded:
            inputs = [values[source] for source in symbol.inputs]
            inputs[1] = self._rounded[symbol.name]
            return self._corrected(symbol, evaluate_symbol(symbol, inputs))
        inside = [s for s in symbol.inputs if s in moved and self._owner.get(s.name) is layer]
        if not inside:
            return None
        return evaluate_symbol(symbol, [moved[s] if s in inside else values[s] for s in symbol.inputs])

    def _corrected(self, symbol: Symbol, value: Array) -> Array:
        """With what bias correction adds, which makes up for the rounding of weights."""
        given = self.model.corrections.get(symbol.name)
        if given is None or symbol.channel_axis is None:
            return value
        shape = tuple(-1 if axis == symbol.channel_axis else 1 for axis in range(value.ndim))
        corrected: Array = value + given.reshape(shape).astype(value.dtype)
        return corrected

    def _add_isolated(self, place: int, value: Array, moved: Array) -> None:
        form = self.forms.get(place)
        if form is None or value.dtype.kind != "f":
            return
        fact = self.model.certificate.tensors[form.name]
        steps = np.clip(np.rint(moved / form.scale) + form.zero_point, fact.lo, fact.hi)
        real = (steps - form.zero_point) * form.scale
        self.isolated[place] = self.isolated.get(place, Noise()) + quantization_noise(value, real)

    def _integer_walk(self, integers: Mapping[str, Array], ends: Mapping[str, Array]) -> list[Array]:
        model, outputs = self.model, {}
        wanted = {entry.name for entry in model.outputs}
        forms = {form.name: (place, form) for place, form in self.forms.items()}
        for symbol, value in self._walk(integers):
            if model.graph.value(symbol) is not None:
                continue
            if value.size:
                self._see(symbol.name, int(value.min()), int(value.max()))
            if symbol.name in wanted:
                outputs[symbol.name] = value
            if symbol.name in forms:
                self._compare(*forms[symbol.name], value, ends)
        return [outputs[entry.name] for entry in model.outputs]

    def _see(self, name: str, lo: int, hi: int) -> None:
        before = self.extremes.get(name, (lo, hi))
        self.extremes[name] = min(before[0], lo), max(before[1], hi)

    def _compare(self, place: int, form: Counterpart, value: Array, ends: Mapping[str, Array]) -> None:
        exact = ends.get(self.layers[place].end.name)
        if exact is None or exact.shape != value.shape or exact.dtype.kind != "f":
            return
        steps = value.astype(np.float64) - form.zero_point
        noise = quantization_noise(exact, form.scale * steps)
        self.cumulative[place] = self.cumulative.get(place, Noise()) + noise
        self.seen[place].add_errors(steps - exact / form.scale, (steps == 0) & (exact == 0))


def _padded(x: Array, batch: int) -> Array:
    return x if len(x) == batch else np.concatenate([x, np.repeat(x[-1:], batch - len(x), axis=0)])

"""The layers of a saved model of which nothing was measured: found in the integer graph by what it was made from."""

from __future__ import annotations

from mrt.evaluation import Counterpart
from mrt.model import QuantizedModel
from mrt.report.errors import ErrorTable
from mrt.report.facts import Bits, Layer, LayerSqnr
from mrt.report.layers import FloatLayer, find_layers, layer_by_symbol
from mrt.report.measure.described import described
from mrt.report.measure.proven import IntegerLayers, bytes_of, headroom_of, integer_layers, rescaling_of
from mrt.report.measure.walk import form_facts, forms_of
from mrt.symbol import Graph, Symbol


def saved_layers(model: QuantizedModel, errors: ErrorTable | None = None) -> list[Layer]:
    """Every layer with what the model's files say. errors: that evaluation left beside it."""
    graph = contracted(model.graph)
    layers = find_layers(graph)
    owner, forms = layer_by_symbol(layers), forms_of(layers, model)
    integer = integer_layers(layers, model, {})
    return [_layer(layer, graph, owner, model, forms.get(layer.place), integer, errors) for layer in layers]


def _layer(
    layer: FloatLayer,
    graph: Graph,
    owner: dict[str, FloatLayer],
    model: QuantizedModel,
    form: Counterpart | None,
    integer: IntegerLayers,
    errors: ErrorTable | None,
) -> Layer:
    place, error = layer.place, None if errors is None or form is None else errors.tensors.get(form.name)
    facts = None if form is None else form_facts(form, model)
    width = [] if facts is None else [max((facts.hi - facts.lo).bit_length(), 1)]
    return Layer(
        **described(layer, graph, owner),
        form=facts,
        bits=[Bits(what="activation", name=layer.end.name, asked=None, chosen=bits, why="") for bits in width],
        sqnr=None
        if error is None
        else LayerSqnr(isolated=None, cumulative=error.sqnr_db, worst_steps=error.worst_steps),
        headroom=headroom_of(place, integer),
        rescaling=rescaling_of(place, integer),
        bytes=bytes_of(place, integer),
    )


def contracted(graph: Graph) -> Graph:
    """An integer graph with one symbol for all that was made from the same float tensor, and called as that.

    It is to be looked at, and computes nothing: each symbol stands with the operator that does most of its work.
    """
    groups: dict[str, list[Symbol]] = {}
    for symbol in (*graph.inputs, *graph.operators):
        groups.setdefault(symbol.origin, []).append(symbol)
    made: dict[str, Symbol] = {}
    for name, group in groups.items():
        made[name] = _joined(name, group, graph, made)
    inputs = [made[symbol.origin] for symbol in graph.inputs]
    outputs = [made[symbol.origin] if graph.value(symbol) is None else symbol for symbol in graph.outputs]
    return Graph(tuple(dict.fromkeys(inputs)), tuple(outputs), graph.parameters)


def _joined(name: str, group: list[Symbol], graph: Graph, made: dict[str, Symbol]) -> Symbol:
    """Reads only what comes earlier, so that no circle can arise."""
    variable = next((symbol for symbol in group if symbol.is_variable), None)
    if variable is not None:
        return Symbol(variable.operator, variable.name, (), variable.type, name)
    head = max(group, key=lambda symbol: (symbol.operator.weight_channel_axis is not None, symbol.name == name))
    ordered = [*head.inputs, *(source for symbol in group for source in symbol.inputs if symbol is not head)]
    inputs: dict[Symbol, None] = {}
    for source in ordered:
        is_parameter = graph.value(source) is not None
        if is_parameter and source in head.inputs:
            inputs[source] = None
        elif not is_parameter and source.origin in made:
            inputs[made[source.origin]] = None
    return Symbol(head.operator, name, tuple(inputs), head.type, name)

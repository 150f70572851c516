"""The headroom of layers: what the certificate proves of sums and of rescaling products, and the widest values met."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mrt.certificate import TensorFact
from mrt.model import QuantizedModel
from mrt.report.facts import Headroom, Proof, ProvenTensor, Rescaling
from mrt.report.layers import FloatLayer
from mrt.report.measure.numbers import width
from mrt.symbol import Array, Graph, Symbol
from mrt.symbol.operation import Operation

MOST_BITS = 32
FULL = 1.0
"""A product that leaves less under 32 bits fills them."""
MOST_TENSORS = 400
"""That a report lists."""


@dataclass(frozen=True, eq=False)
class IntegerLayers:
    """The computed integer symbols of each layer by place, in order, and the layer of each by name.

    adding: the places of the layers that add in float.
    """

    graph: Graph
    by_layer: Mapping[int, tuple[Symbol, ...]]
    place_of: Mapping[str, int]
    tensors: tuple[ProvenTensor, ...]
    adding: frozenset[int]

    def tensors_of(self, place: int) -> list[ProvenTensor]:
        return [tensor for tensor in self.tensors if tensor.layer == place]


def integer_layers(
    layers: Sequence[FloatLayer], model: QuantizedModel, extremes: Mapping[str, tuple[int, int]]
) -> IntegerLayers:
    """extremes: the least and the greatest value met, by integer tensor, of those that were looked at."""
    graph = model.graph
    owner = {symbol.name: layer.place for layer in layers for symbol in layer.symbols}
    by_layer: dict[int, list[Symbol]] = {layer.place: [] for layer in layers}
    place_of: dict[str, int] = {}
    for symbol in (*graph.inputs, *graph.operators):
        place = owner.get(symbol.origin, owner.get(symbol.name))
        if place is not None:
            by_layer[place].append(symbol)
            place_of[symbol.name] = place
    varying = graph.dependents(graph.inputs)
    tensors = tuple(
        _tensor(s, model.certificate.tensors[s.name], extremes.get(s.name), place_of.get(s.name))
        for s in (*graph.inputs, *graph.operators)
        if s in varying
    )
    adding = frozenset(layer.place for layer in layers if any(map(_adds, layer.symbols)))
    return IntegerLayers(graph, {place: tuple(found) for place, found in by_layer.items()}, place_of, tensors, adding)


def _tensor(symbol: Symbol, fact: TensorFact, seen: tuple[int, int] | None, layer: int | None) -> ProvenTensor:
    return ProvenTensor(
        name=symbol.name,
        operator="input" if symbol.is_variable else symbol.op,
        dtype=fact.dtype,
        lo=fact.lo,
        hi=fact.hi,
        bits=width(fact.lo, fact.hi),
        rule=fact.rule,
        seen=None if seen is None else list(seen),
        seen_bits=None if seen is None else width(*seen),
        layer=layer,
    )


def headroom_of(place: int, found: IntegerLayers) -> Headroom:
    """The widest sum and the widest product of a layer."""
    by_name = found.graph.by_name
    own = found.tensors_of(place)
    return Headroom(
        sum=_widest(tensor for tensor in own if sums_up(by_name[tensor.name], found)),
        product=_widest(tensor for tensor in own if rescales(by_name[tensor.name], found)),
    )


def _widest(tensors: Iterable[ProvenTensor]) -> ProvenTensor | None:
    return max(tensors, key=lambda tensor: tensor.bits, default=None)


def sums_up(symbol: Symbol, found: IntegerLayers) -> bool:
    """Whether a symbol is a sum of its layer: of two tensors, of products, of elements along axes or in windows.

    What a layer adds that is none in float, such as a normalization, it adds at a scale that is chosen so that 32 bits
    are filled; and to round is not to add.
    """
    return found.place_of.get(symbol.name) in found.adding and _adds(symbol) and not _rounds(symbol, found.graph)


def _adds(symbol: Symbol) -> bool:
    """Whether its operator adds, by what its record says."""
    if symbol.is_variable or symbol.operator.keeps_scale:
        return False
    operator = symbol.operator
    if operator.operation in (Operation.ADD, Operation.SUBTRACT) or operator.weight_channel_axis is not None:
        return True
    if operator.summed_products(*(source.type for source in symbol.inputs)):
        return True
    return operator.family in ("add", "sum", "mean", "pooling")


def rescales(symbol: Symbol, found: IntegerLayers) -> bool:
    """Whether a symbol multiplies element by element, or adds and is no sum of its layer."""
    return _multiplies(symbol) or (_adds(symbol) and not sums_up(symbol, found))


def _multiplies(symbol: Symbol) -> bool:
    return not symbol.is_variable and symbol.operator.operation is Operation.MULTIPLY


def _rounds(symbol: Symbol, graph: Graph) -> bool:
    """Whether it adds half of a divisor to a product, or a constant to one that is shifted right then."""
    if symbol.operator.operation is not Operation.ADD or not any(map(_multiplies, symbol.inputs)):
        return False
    readers = graph.consumers[symbol]
    return any(map(_divides, symbol.inputs)) or (bool(readers) and all(map(_shifts, readers)))


def _divides(symbol: Symbol) -> bool:
    return not symbol.is_variable and symbol.operator.family == "division"


def _is_shifted_product(symbol: Symbol, graph: Graph) -> bool:
    """Whether it multiplies by a constant what is shifted right then."""
    if not _multiplies(symbol) or _factor(symbol, graph) is None:
        return False
    return any(_shifts(reader) for reader in graph.consumers[symbol])


def _shifts(symbol: Symbol) -> bool:
    return "shift" in symbol.operator.input_names


def _factor(symbol: Symbol, graph: Graph) -> Array | None:
    return next((value for source in symbol.inputs if (value := graph.value(source)) is not None), None)


def rescaling_of(place: int, found: IntegerLayers) -> Rescaling | None:
    """The last rescaling of a layer; None where it has none."""
    graph = found.graph
    products = [symbol for symbol in found.by_layer[place] if _is_shifted_product(symbol, graph)]
    if not products:
        return None
    factor = _factor(products[-1], graph)
    shift = next((_factor(r, graph) for r in graph.consumers[products[-1]] if _shifts(r)), None)
    return Rescaling(multipliers=_ends(factor), shifts=_ends(shift))


def _ends(value: Array | None) -> list[int] | None:
    return None if value is None else [int(value.min()), int(value.max())]


def bytes_of(place: int, found: IntegerLayers) -> int:
    """Bytes of the parameters that a layer's integer symbols read."""
    graph = found.graph
    values = {s.name: graph.value(s) for symbol in found.by_layer[place] for s in symbol.inputs}
    return sum(value.nbytes for value in values.values() if value is not None)


def proof_of(model: QuantizedModel, found: IntegerLayers) -> Proof:
    """The certificate's verdict in one sentence, and what leads to it."""
    by_name = found.graph.by_name
    sums = [tensor for tensor in found.tensors if sums_up(by_name[tensor.name], found)]
    products = [tensor for tensor in found.tensors if rescales(by_name[tensor.name], found)]
    certificate = model.certificate
    widest = _widest(sums)
    spare = None if widest is None else round(MOST_BITS - widest.bits, 2)
    room = "" if spare is None else f" The widest sum leaves {spare:.1f} of 32 bits."
    return Proof(
        sentence=(
            f"Proven for every input: all {len(certificate.tensors)} tensors are integers of at most "
            f"{certificate.max_bits} bits, and nothing overflows.{room}"
        ),
        max_bits=certificate.max_bits,
        tensors=len(certificate.tensors),
        operators=sum(certificate.operators.values()),
        spare_bits=spare,
        sums=len(sums),
        products=len(products),
        full_products=sum(MOST_BITS - tensor.bits < FULL for tensor in products),
    )


def listed_tensors(found: IntegerLayers) -> list[ProvenTensor]:
    """The widest tensor of each layer first, then the widest of all, in the order of the graph; at most so many."""
    by_width = sorted(found.tensors, key=lambda tensor: -tensor.bits)
    first = {tensor.layer: tensor for tensor in reversed(by_width)}
    chosen = {tensor.name for tensor in [*first.values(), *by_width][:MOST_TENSORS]}
    return [tensor for tensor in found.tensors if tensor.name in chosen]

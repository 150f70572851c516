"""Values drawn for the arguments of a Relay text that are parameters and have none, to try a network with."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping

import numpy as np

from mrt.frontend.relay.stated_types import value_dtype
from mrt.frontend.relay.syntax import Function, TensorSyntax
from mrt.frontend.relay.tracing import Key, Trace, TracedOperator
from mrt.frontend.shared.inputs import ReadOptions
from mrt.frontend.shared.refusals import check_size
from mrt.symbol import Array, Graph

WEIGHTS: Mapping[str, tuple[int, ...]] = {
    **{f"nn.conv{n}d{kind}": (1,) for n in (1, 2, 3) for kind in ("", "_transpose")},
    **dict.fromkeys(("nn.dense", "nn.bias_add", "nn.prelu", "qnn.conv2d", "qnn.conv2d_transpose", "qnn.dense"), (1,)),
    **dict.fromkeys(("nn.layer_norm", "nn.instance_norm", "nn.group_norm"), (1, 2)),
    "nn.batch_norm": (1, 2, 3, 4),
}
"""Inputs that a trained network has parameters for: an argument there that has no value was forgotten."""

_LIKELY: Mapping[str, tuple[int, ...]] = {
    "take": (0,),
    "nn.matmul": (1,),
    "nn.batch_matmul": (1,),
    "nn.embedding": (0,),
}
"""Inputs that may be parameters, and are where values are drawn."""

_MOVING = frozenset(
    {"broadcast_to", "cast", "copy", "expand_dims", "layout_transform", "reshape", "squeeze", "transpose"}
)
"""Operators behind which an argument is used as what it is."""

_FACTORS = frozenset({"multiply", "divide", "power"})
_TERMS = frozenset({"add", "subtract", "maximum", "minimum"})
_NORMALIZATIONS = frozenset({"nn.batch_norm", "nn.layer_norm", "nn.instance_norm", "nn.group_norm"})

_NAMES_SHOWN = 5
_SEED = 0


def random_values(
    trace: Trace, function: Function, values: Mapping[str, Array], options: ReadOptions
) -> dict[str, Array]:
    """Values for the arguments that are parameters and have none, always the same of the same text.

    An argument is a parameter where an operator has one of a trained network, and where all that reads it are
    elementwise operators with what is computed, but not if it is the first or its shape is given. Weights are normal
    with the variance 2 / (products of a sum), factors and variances lie in [0.5, 1.5], other terms are normal, of 0.1.
    """
    uses = _uses(trace)
    drawn: dict[str, Array] = {}
    for place, parameter in enumerate(function.parameters):
        name, type = parameter.name, parameter.type
        is_given = name in values or name in options.values or name in options.shapes
        if is_given or not isinstance(type, TensorSyntax):
            continue
        shape = tuple(size for size in type.shape if size is not None)
        use = _parameter_use(uses.get(name, []), is_first=place == 0)
        if use is not None and len(shape) == len(type.shape):
            check_size(f"argument {name}", shape)
            rng = np.random.default_rng([_SEED, zlib.crc32(name.encode())])
            drawn[name] = _drawn(rng, *use, shape).astype(value_dtype(type.dtype))
    return drawn


def random_note(graph: Graph, drawn: Mapping[str, Array]) -> str:
    """What a reader of the result must know."""
    names = [*drawn]
    more = ", …" if len(names) > _NAMES_SHOWN else ""
    return (
        f"{len(names)} parameters without values are random, so that no result means anything "
        f"({', '.join(names[:_NAMES_SHOWN])}{more}); the inputs are {', '.join(s.name for s in graph.inputs)}"
    )


_Use = tuple[TracedOperator, int]


def _uses(trace: Trace) -> dict[str, list[tuple[TracedOperator, int, bool]]]:
    """For each argument what reads it, at which of its places, and whether beside something computed."""
    roots: dict[int, str] = {}
    found: dict[str, list[tuple[TracedOperator, int, bool]]] = {}

    def root(key: Key) -> str | None:
        first = key[0]
        return first if isinstance(first, str) else roots.get(first)

    for number, operator in enumerate(trace.operators):
        read = [(place, root(key)) for place, key in _reads(operator)]
        is_mixed = any(name is None for _, name in read)
        if operator.kind in _MOVING and len(read) == 1 and read[0][1] is not None:
            roots[number] = read[0][1]
            continue
        for place, name in read:
            if name is not None:
                found.setdefault(name, []).append((operator, place, is_mixed))
    return found


def _reads(operator: TracedOperator) -> Iterator[tuple[int, Key]]:
    for place, keys in enumerate(operator.inputs):
        for key in keys:
            yield place, key


def _parameter_use(uses: list[tuple[TracedOperator, int, bool]], is_first: bool) -> _Use | None:
    """The use that tells that an argument is a parameter, None where none does."""
    for operator, place, _ in uses:
        if place in WEIGHTS.get(operator.kind, ()):
            return operator, place
    if is_first or not uses:
        return None
    for operator, place, _ in uses:
        if place in _LIKELY.get(operator.kind, ()):
            return operator, place
    is_elementwise = all(is_mixed and operator.kind in _FACTORS | _TERMS for operator, _, is_mixed in uses)
    return uses[0][:2] if is_elementwise else None


def _drawn(rng: np.random.Generator, operator: TracedOperator, place: int, shape: tuple[int, ...]) -> Array:
    kind = operator.kind
    is_factor = kind in _NORMALIZATIONS and place in (1, 4)
    if is_factor or kind in _FACTORS:
        return rng.uniform(0.5, 1.5, shape)
    if kind in _NORMALIZATIONS | _TERMS or kind == "nn.bias_add":
        return rng.normal(0, 0.1, shape)
    if kind == "nn.prelu":
        return rng.uniform(0, 0.3, shape)
    if kind.startswith("qnn."):
        return rng.integers(-127, 128, shape)
    products = int(np.prod(shape)) // max(shape[_output_axis(operator, len(shape))] if shape else 1, 1)
    return rng.normal(0, np.sqrt(2 / max(products, 1)), shape)


def _output_axis(operator: TracedOperator, rank: int) -> int:
    """The axis of a weight that its sums do not run over, as far as its layout says."""
    layout = operator.call.attributes.get("kernel_layout") if operator.call is not None else None
    default = "IO" if operator.kind.endswith("_transpose") else "OI"
    axis = str(layout or default).find("O")
    return axis if 0 <= axis < rank else 0

"""Random float networks: quantized as options drawn at random say, they are proven, and compiled code gives the proof's
integers; or they are refused by an MRTError."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any

import numpy as np

import mrt
from mrt.calibration import CalibrationConfig
from mrt.errors import MRTError
from mrt.model import QuantizedModel
from mrt.preparation import PreparationConfig
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Array, Graph, GraphBuilder, Operator, Symbol, TensorType, find_operator
from tests.backend.compiled import assert_same_values
from tests.fuzz.case import Outcome
from tests.fuzz.draw import Draw
from tests.matrix_cases import CASES

MOST_OPERATORS = 8
BATCHES = 3


@cache
def _functions() -> tuple[tuple[Operator, bool], ...]:
    """Elementwise operators of one operand, and whether it must be positive."""
    found = [case for case in CASES if case.operator.is_elementwise and len(case.operands) == 1]
    return tuple((case.operator, not getattr(case.operands[0], "is_real", True)) for case in found)


class Network:
    """A float graph in the making; every tensor has the batch 1 as axis 0."""

    def __init__(self, draw: Draw) -> None:
        self.draw, self.builder, self.pool = draw, GraphBuilder(), []
        for place in range(draw.choice((1, 1, 1, 2))):
            shape = (1, *draw.shape(draw.choice((1, 2, 3, 3, 3, 4)), 600))
            self.pool: list[Symbol] = [*self.pool, self.builder.input(f"x{place}", TensorType(shape))]

    def weights(self, *shape: int) -> Symbol:
        """Normal values of any size; now and then channels of zeros, or equal values."""
        values = np.asarray(self.draw.random.standard_normal(shape)) * 10.0 ** self.draw.choice((0, 0, 0, 0, -3, 3))
        if shape and self.draw.chance(0.1):
            values[: max(len(values) // 2, 1)] = self.draw.choice((0.0, 1.0))
        return self.builder.parameter("w", np.asarray(values, np.float32))

    def apply(self, op: str, *inputs: Symbol, **attributes: Any) -> Symbol:
        return self.builder.apply(find_operator(op)(**attributes), inputs)

    def image(self) -> Symbol:
        found = [s for s in self.pool if s.type.rank == 4] or self.pool
        data = self.draw.choice(found)
        return data if data.type.rank == 4 else self.apply("Reshape", data, shape=(0, -1, 1, 1))

    def grow(self) -> str:
        grower = self.draw.choice(GROWERS)
        made = grower(self, self.draw.choice(self.pool))
        if made.type.size <= 4096:
            self.pool.append(made)
        return made.op

    def graph(self) -> Graph:
        """Of the last tensor and a few others."""
        kept = [s for s in self.pool[:-1] if not s.is_variable and self.draw.chance(0.15)]
        return self.builder.graph([*kept, self.pool[-1]])


def _function(n: Network, data: Symbol) -> Symbol:
    operator, positive = n.draw.choice(_functions())
    if positive:
        data = n.apply("_plus_scalar", n.apply("abs", data), scalar=0.25)
    return n.builder.apply(operator, [data])


def _convolution(n: Network, data: Symbol) -> Symbol:
    data = n.image()
    pad = tuple(n.draw.integer(0, 1) for _ in range(2))
    kernel = tuple(n.draw.integer(1, min(size + 2 * p, 3)) for size, p in zip(data.shape[2:], pad, strict=True))
    groups = n.draw.choice((1, 1, n.draw.divisor(data.shape[1])))
    filters = groups * n.draw.integer(1, max(8 // groups, 1))
    inputs = [data, n.weights(filters, data.shape[1] // groups, *kernel)]
    inputs += [n.weights(filters)] if n.draw.chance(0.5) else []
    named = {"kernel": kernel, "num_filter": filters, "num_group": groups, "no_bias": len(inputs) == 2}
    made = n.apply("Convolution", *inputs, pad=pad, stride=tuple(n.draw.integer(1, 2) for _ in kernel), **named)
    if n.draw.chance(0.3):
        variance = n.builder.parameter("v", np.abs(n.draw.random.standard_normal(filters)).astype(np.float32))
        made = n.apply("BatchNorm", made, *(n.weights(filters) for _ in range(3)), variance, fix_gamma=False)
    return n.apply("relu", made) if n.draw.chance(0.5) else made


def _deconvolution(n: Network, data: Symbol) -> Symbol:
    data = n.image()
    groups = n.draw.divisor(data.shape[1])
    weight = n.weights(data.shape[1], n.draw.integer(1, 3), 2, 3)
    named = {"kernel": (2, 3), "num_filter": weight.shape[1] * groups, "num_group": groups}
    return n.apply("Deconvolution", data, weight, stride=(n.draw.integer(1, 2), 2), **named)


def _dense(n: Network, data: Symbol) -> Symbol:
    flatten, hidden = n.draw.chance(0.5), n.draw.integer(1, 12)
    length = prod(data.shape[1:]) if flatten else data.shape[-1]
    inputs = [data, n.weights(hidden, length), *([n.weights(hidden)] if n.draw.chance(0.5) else [])]
    return n.apply("FullyConnected", *inputs, num_hidden=hidden, flatten=flatten, no_bias=len(inputs) == 2)


def _product(n: Network, data: Symbol) -> Symbol:
    data = n.apply("Reshape", data, shape=(0, n.draw.divisor(prod(data.shape[1:])), -1))
    turned = n.draw.chance(0.5)
    scores = n.apply("batch_dot", data, data, transpose_a=turned, transpose_b=not turned)
    return n.apply("softmax", scores, axis=-1) if n.draw.chance(0.5) else scores


def _two(n: Network, data: Symbol) -> Symbol:
    """An operator of two or more tensors of one shape, or of one and a constant."""
    others = [s for s in n.pool if s.shape == data.shape]
    if n.draw.chance(0.6):
        op = n.draw.choice(("elemwise_add", "elemwise_sub", "elemwise_mul", "_maximum", "_minimum"))
        return n.apply(op, data, n.draw.choice(others))
    if n.draw.chance(0.4):
        return n.apply("Concat", *(n.draw.choice(others) for _ in range(n.draw.integer(1, 3))), dim=1)
    shape = [1 if n.draw.chance(0.5) else length for length in data.shape]
    constant = n.weights(*shape[n.draw.integer(0, len(shape)) :])
    op = n.draw.choice(("broadcast_add", "broadcast_sub", "broadcast_mul", "broadcast_maximum", "broadcast_div"))
    return n.apply(op, *(data, constant)[:: n.draw.choice((1, 1, -1))])


def _pooling(n: Network, data: Symbol) -> Symbol:
    data, kind = n.image(), n.draw.choice(("max", "avg", "sum"))
    if n.draw.chance(0.3):
        return n.apply("Pooling", data, pool_type=kind, global_pool=True)
    kernel = tuple(n.draw.integer(1, min(size, 3)) for size in data.shape[2:])
    pad = tuple(n.draw.integer(0, k - 1) for k in kernel)
    counts, convention = n.draw.chance(0.5), n.draw.choice(("valid", "full"))
    named = {"kernel": kernel, "pad": pad, "count_include_pad": counts, "pooling_convention": convention}
    return n.apply("Pooling", data, pool_type=kind, stride=tuple(n.draw.integer(1, 2) for _ in kernel), **named)


def _normalization(n: Network, data: Symbol) -> Symbol:
    kind, length = n.draw.integer(0, 3), data.shape[-1]
    if kind == 0:
        return n.apply("LayerNorm", data, n.weights(length), n.weights(length), axis=-1)
    if kind == 1 and data.type.rank > 2:
        return n.apply("InstanceNorm", data, n.weights(data.shape[1]), n.weights(data.shape[1]))
    if kind == 2:
        return n.apply("L2Normalization", data)
    return n.apply(n.draw.choice(("softmax", "log_softmax")), data, axis=-1)


def _moved(n: Network, data: Symbol) -> Symbol:
    rank, kind = data.type.rank, n.draw.integer(0, 5)
    axis = n.draw.integer(1, rank - 1)
    if kind == 0:
        return n.apply("transpose", data, axes=(0, *(int(a) + 1 for a in n.draw.random.permutation(rank - 1))))
    if kind == 1:
        begin = n.draw.integer(0, data.shape[axis] - 1)
        return n.apply("slice_axis", data, axis=axis, begin=begin, end=n.draw.integer(begin + 1, data.shape[axis]))
    if kind == 2:
        widths = (0, 0, *(n.draw.integer(0, 2) for _ in range(2 * rank - 2)))
        return n.apply("Pad", data, pad_width=widths, constant_value=n.draw.choice((0.0, 0.0, -1.3, 1e3)))
    if kind == 3:
        op = n.draw.choice(("sum", "mean", "max", "min"))
        return n.apply(op, data, axis=(axis,), keepdims=rank == 2 or n.draw.chance(0.5))
    if kind == 4:
        return n.apply("Reshape", data, shape=(0, n.draw.divisor(prod(data.shape[1:])), -1))
    return n.apply("repeat", data, repeats=2, axis=axis)


GROWERS: tuple[Callable[[Network, Symbol], Symbol], ...] = (
    *(_function, _function, _convolution, _convolution, _deconvolution, _dense, _product, _two, _two, _pooling),
    *(_normalization, _moved, _moved),
)


def _options(draw: Draw) -> tuple[QuantizationConfig, CalibrationConfig]:
    def granularity(*others: str) -> Any:
        return draw.choice((*others, "layer", {"channel": draw.integer(1, 4)}))

    def bits() -> int:
        return draw.choice((8, 8, 8, 2, 3, 4, 7, 9, 12, 15, 16))

    kinds = ("symmetric", "affine")
    activation = {"bits": bits(), "quantizer": draw.choice(kinds), "granularity": granularity("auto")}
    weight = {"bits": bits(), "quantizer": draw.choice(kinds), "scales": draw.choice(("output_channel", "layer"))}
    options = {
        "activation": activation | {"storage": draw.choice(("auto", "signed", "unsigned"))},
        "weight": weight | {"granularity": granularity()},
        "output": {"bits": draw.choice((16, 16, 8, 2))},
        "bias_correction": draw.choice(("none", "none", "fast", "sequential")),
    }
    calibration = {"method": draw.choice(("max", "max", "historical", "percentile", "mse"))}
    return QuantizationConfig.model_validate({"preset": "mrt", **options}), CalibrationConfig.model_validate(
        calibration
    )


def _data(draw: Draw, graph: Graph) -> list[dict[str, Array]]:
    """Normal, all zeros, of one sign, tiny or large."""
    size = draw.choice((1.0, 1.0, 1.0, 1.0, 0.0, 1e-30, 1e4, 1e30))
    turn = np.abs if draw.chance(0.2) else np.asarray

    def values(shape: tuple[int, ...]) -> Array:
        return np.asarray(turn(size * draw.random.standard_normal((2, *shape[1:])))).astype(np.float32)

    return [{s.name: values(s.shape) for s in graph.inputs} for _ in range(BATCHES)]


def fuzz_network(draw: Draw, thorough: bool) -> Outcome:
    outcome, network = Outcome(), Network(draw)
    for _ in range(draw.integer(1, MOST_OPERATORS)):
        try:
            outcome.tried[network.grow()] += 1
        except MRTError:
            outcome.refused["operator"] += 1
    graph = network.graph()
    (quantization, calibration), data = _options(draw), _data(draw, graph)
    try:
        try:
            model = mrt.quantize(graph, data, quantization, calibration, PreparationConfig())
        except MRTError as error:
            outcome.refused[type(error).__name__] += 1
            assert str(error) and "\n" not in str(error), repr(str(error))
            return outcome
        _check(model, data)
    except Exception as error:
        raise AssertionError(f"{quantization!r}\n{calibration!r}\n{graph}") from error
    outcome.tried["quantized"] += 1
    return outcome


def _check(model: QuantizedModel, data: list[dict[str, Array]]) -> None:
    """It verifies and loads as it was, stays in its bounds, and is compiled to the same integers."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        mrt.verify(folder)
        loaded = mrt.load(folder)
    module = loaded.compile()
    for sample in (data[0], {name: 100 * x for name, x in data[-1].items()}):
        feeds = {name: x[:1] for name, x in loaded.quantize_inputs(sample).items()}
        for symbol, value in loaded.graph.walk(feeds):
            fact = loaded.facts[symbol.name]
            assert fact.lo <= value.min() and value.max() <= fact.hi, (symbol, fact)
        given = module.run_integer(feeds)
        expected = loaded.graph.evaluate(feeds)
        assert_same_values(loaded.graph, given if isinstance(given, list) else [given], expected)
        for x in loaded.dequantize_outputs(expected):
            assert np.isfinite(x).all()

"""Operators on real values: quantizers at the ends of an integer graph, and what float tails are made of."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mrt.export.arithmetic import OF_TENSOR_AND_NUMBER, OF_TWO_TENSORS, numpy_name
from mrt.export.arrangement import ARRANGING
from mrt.export.onnx.exporters.arithmetic import OPERATORS
from mrt.export.onnx.exporters.arrangement import concat, repeat, tile, up_sampling
from mrt.export.onnx.node import Node, Value, lengths, real_exporter
from mrt.symbol import Array, Operator
from mrt.symbol.operators.activation import Clip, LeakyReLU, Relu, Sigmoid, Tanh
from mrt.symbol.operators.arrangement import Repeat, Tile, UpSampling
from mrt.symbol.operators.broadcast import BroadcastDiv
from mrt.symbol.operators.elementwise import AddN
from mrt.symbol.operators.functions import (
    Abs,
    Ceil,
    Erf,
    Exp,
    Floor,
    HardSigmoid,
    Log,
    Negative,
    PowerScalar,
    Reciprocal,
    Silu,
    Softrelu,
    Sqrt,
    Square,
)
from mrt.symbol.operators.integer import Dequantize, Quantize
from mrt.symbol.operators.linear import BatchDot, FullyConnected
from mrt.symbol.operators.normalization import LogSoftmax, OverClasses, Softmax
from mrt.symbol.operators.reduce import Extreme, Max, Mean, Sum
from mrt.symbol.operators.scalar import DivScalar, RDivScalar, RMinusScalar, WithNumber
from mrt.symbol.operators.selection import ArgMax, ArgMin, Min, Place
from mrt.symbol.operators.transform import Concat
from mrt.symbol.types import normalize_axis

Rounding = Callable[[Node, Value], Value]


def float32(number: float) -> Array:
    return np.asarray(number, np.float32)


def _below_zero(node: Node, data: Value, below: Value, others: Value) -> Value:
    return node.emit("Where", [node.emit("Less", [data, float32(0)], "bool"), below, others], data.dtype)


def _half(node: Node, data: Value, below: str, others: str) -> Value:
    """-below(1/2 - x) for negative x, else others(x + 1/2) or others(x - 1/2), both as the operators say."""
    if below == "Floor":
        low = node.emit("Neg", [node.emit("Floor", [node.emit("Sub", [float32(0.5), data])])])
        return _below_zero(node, data, low, node.emit(others, [node.emit("Add", [data, float32(0.5)])]))
    low = node.emit("Neg", [node.emit("Ceil", [node.emit("Sub", [node.emit("Neg", [data]), float32(0.5)])])])
    return _below_zero(node, data, low, node.emit(others, [node.emit("Sub", [data, float32(0.5)])]))


def _sign(node: Node, data: Value) -> Value:
    negative = node.emit("Less", [data, float32(0)], "bool")
    return node.emit("Where", [negative, float32(-1), float32(1)], "float32")


def _by_sign(below: str, others: str) -> Rounding:
    return lambda node, x: _below_zero(node, x, node.emit(below, [x]), node.emit(others, [x]))


def _half_odd(node: Node, data: Value) -> Value:
    return node.emit("Add", [node.emit("Round", [node.emit("Sub", [data, float32(1)])]), float32(1)])


_ROUNDINGS: dict[str, Rounding] = {
    "half_even": lambda node, x: node.emit("Round", [x]),
    "half_odd": _half_odd,
    "floor": lambda node, x: node.emit("Floor", [x]),
    "ceil": lambda node, x: node.emit("Ceil", [x]),
    "toward_zero": _by_sign("Ceil", "Floor"),
    "away_from_zero": _by_sign("Floor", "Ceil"),
    "half_away_from_zero": lambda node, x: _half(node, x, "Floor", "Floor"),
    "half_toward_zero": lambda node, x: _half(node, x, "Ceil", "Ceil"),
    "sign": _sign,
}
"""As `mrt.symbol.rounding.ROUNDINGS` has them."""


@real_exporter(Quantize)
def quantize(op: Quantize, node: Node) -> Value:
    """QuantizeLinear where that is it; else the quotient in float32, the sum in float64, in which it is exact."""
    data, scale, zero = (node.input(i) for i in range(3))
    numbers, offset = node.array(scale), node.array(zero)
    is_plain = op.is_half_even and op.dtype in ("int8", "uint8") and numbers is not None and numbers.size == 1
    if is_plain and offset is not None and np.iinfo(op.dtype).min <= int(offset) <= np.iinfo(op.dtype).max:
        zero = node.scope.constant(offset.astype(op.dtype).reshape(()))
        scale = node.scope.constant(numbers.reshape(())) if numbers is not None else scale
        made = node.emit("QuantizeLinear", [data, scale, zero], op.dtype)
        info = np.iinfo(op.dtype)
        if (op.a_min, op.a_max) == (info.min, info.max):
            return made
        return node.emit("Clip", [made, np.asarray(op.a_min, op.dtype), np.asarray(op.a_max, op.dtype)])
    steps = node.emit("Div", [data, scale])
    if op.zero_point_first:
        steps = node.emit("Add", [steps, node.cast(zero, "float32")])
    found = node.cast(_ROUNDINGS[op.rounding](node, steps), "float64")
    if not op.zero_point_first:
        found = node.emit("Add", [found, node.cast(zero, "float64")])
    ends = [np.asarray(end, np.float64) for end in (op.a_min, op.a_max)]
    return node.cast(node.emit("Clip", [found, *ends]), op.dtype)


@real_exporter(Dequantize)
def dequantize(op: Dequantize, node: Node) -> Value:
    """In float64, rounded once."""
    steps = node.emit("Sub", [node.cast(node.input(0), "float64"), node.cast(node.input(2), "float64")])
    return node.cast(node.emit("Mul", [steps, node.cast(node.input(1), "float64")]), "float32")


for _records, _write in ARRANGING.items():
    real_exporter(*_records)(_write)
real_exporter(Concat)(concat)
real_exporter(Tile)(tile)
real_exporter(Repeat)(repeat)
real_exporter(UpSampling)(up_sampling)


@real_exporter(*OF_TWO_TENSORS)
def of_two_tensors(op: Operator, node: Node) -> Value:
    return node.emit(OPERATORS[numpy_name(op)], [node.input(0), node.input(1)])


@real_exporter(*OF_TENSOR_AND_NUMBER)
def of_tensor_and_number(op: WithNumber, node: Node) -> Value:
    return node.emit(OPERATORS[numpy_name(op)], [node.input(0), float32(op.scalar)])


@real_exporter(RMinusScalar)
def number_minus_tensor(op: RMinusScalar, node: Node) -> Value:
    return _of_number("Sub", op.scalar, node)


@real_exporter(RDivScalar)
def number_by_tensor(op: RDivScalar, node: Node) -> Value:
    return _of_number("Div", op.scalar, node)


def _of_number(name: str, number: float, node: Node) -> Value:
    return node.emit(name, [float32(number), node.input(0)], node.symbol.dtype)


@real_exporter(DivScalar)
def tensor_by_number(op: DivScalar, node: Node) -> Value:
    return node.emit("Div", [node.input(0), float32(op.scalar)])


@real_exporter(BroadcastDiv)
def quotient(op: BroadcastDiv, node: Node) -> Value:
    return node.emit("Div", [node.input(0), node.input(1)])


@real_exporter(AddN)
def add_n(op: AddN, node: Node) -> Value:
    return node.emit("Sum", [node.input(index) for index in range(node.input_count)])


def _named(name: str) -> Callable[[Operator, Node], Value]:
    return lambda op, node: node.emit(name, [node.input(0)])


for _record, _name in (
    *((Exp, "Exp"), (Log, "Log"), (Sqrt, "Sqrt"), (Tanh, "Tanh"), (Sigmoid, "Sigmoid"), (Erf, "Erf")),
    *((Abs, "Abs"), (Negative, "Neg"), (Relu, "Relu"), (Reciprocal, "Reciprocal"), (Softrelu, "Softplus")),
    *((Floor, "Floor"), (Ceil, "Ceil")),
):
    real_exporter(_record)(_named(_name))


@real_exporter(Square)
def square(op: Square, node: Node) -> Value:
    return node.emit("Mul", [node.input(0), node.input(0)])


@real_exporter(Silu)
def silu(op: Silu, node: Node) -> Value:
    return node.emit("Mul", [node.input(0), node.emit("Sigmoid", [node.input(0)])])


@real_exporter(HardSigmoid)
def hard_sigmoid(op: HardSigmoid, node: Node) -> Value:
    return node.emit("HardSigmoid", [node.input(0)], alpha=float(op.alpha), beta=float(op.beta))


@real_exporter(PowerScalar)
def power(op: PowerScalar, node: Node) -> Value:
    return node.emit("Pow", [node.input(0), float32(op.scalar)])


@real_exporter(Clip)
def clip(op: Clip, node: Node) -> Value:
    return node.emit("Clip", [node.input(0), float32(op.a_min), float32(op.a_max)])


@real_exporter(LeakyReLU)
def leaky_relu(op: LeakyReLU, node: Node) -> Value:
    data = node.input(0)
    if op.act_type == "prelu":
        slope = node.input(1)
        if len(node.shape) > 1:
            slope = node.reshaped(slope, (-1, *(1 for _ in node.shape[2:])))
        return node.emit("PRelu", [data, slope])
    if op.act_type in ("leaky", "elu"):
        return node.emit({"leaky": "LeakyRelu", "elu": "Elu"}[op.act_type], [data], alpha=float(op.slope))
    if op.act_type == "selu":
        return node.emit("Selu", [data])
    inner = node.emit("Erf", [node.emit("Mul", [data, float32(0.5**0.5)])])
    if op.act_type == "gelu_tanh":
        cubed = node.emit("Mul", [node.emit("Pow", [data, float32(3)]), float32(0.044715)])
        inner = node.emit("Tanh", [node.emit("Mul", [node.emit("Add", [data, cubed]), float32((2 / np.pi) ** 0.5)])])
    raised = node.emit("Mul", [node.emit("Add", [inner, float32(1)]), float32(0.5)])
    return node.emit("Mul", [data, raised])


@real_exporter(Softmax)
def softmax(op: Softmax, node: Node) -> Value:
    return _over_classes("Softmax", op, node)


@real_exporter(LogSoftmax)
def log_softmax(op: LogSoftmax, node: Node) -> Value:
    return _over_classes("LogSoftmax", op, node)


def _over_classes(name: str, op: OverClasses, node: Node) -> Value:
    data = node.input(0)
    if op.temperature is not None:
        data = node.emit("Div", [data, float32(op.temperature)])
    return node.emit(name, [data], axis=normalize_axis(op.axis, len(node.shape)))


@real_exporter(Sum)
def total(op: Sum, node: Node) -> Value:
    axes, data = op.axes(len(node.input_shape(0))), node.input(0)
    found = node.emit("ReduceSum", [data, lengths(axes)], keepdims=1) if axes else data
    return found if op.keepdims else node.reshaped(found, node.shape)


@real_exporter(Mean)
def mean(op: Mean, node: Node) -> Value:
    return _reduced("ReduceMean", op.axes(len(node.input_shape(0))), op.keepdims, node)


@real_exporter(Max)
def maximum(op: Extreme, node: Node) -> Value:
    return _reduced("ReduceMax", op.axes(len(node.input_shape(0))), op.keepdims, node)


@real_exporter(Min)
def minimum(op: Extreme, node: Node) -> Value:
    return _reduced("ReduceMin", op.axes(len(node.input_shape(0))), op.keepdims, node)


def _reduced(name: str, axes: tuple[int, ...], keepdims: bool, node: Node) -> Value:
    data = node.input(0)
    found = node.emit(name, [data], axes=list(axes), keepdims=1) if axes else data
    return found if keepdims else node.reshaped(found, node.shape)


@real_exporter(ArgMax)
def place_of_maximum(op: ArgMax, node: Node) -> Value:
    return _place("ArgMax", op, node)


@real_exporter(ArgMin)
def place_of_minimum(op: ArgMin, node: Node) -> Value:
    return _place("ArgMin", op, node)


def _place(name: str, op: Place, node: Node) -> Value:
    """A place is what the data is: a float."""
    data, rank = node.input(0), len(node.input_shape(0))
    if op.axis is None:
        data, rank = node.reshaped(data, (-1,)), 1
    found = node.emit(name, [data], "int64", axis=normalize_axis(op.axis or 0, rank), keepdims=1)
    return node.reshaped(node.cast(found, node.symbol.dtype), node.shape)


@real_exporter(FullyConnected)
def fully_connected(op: FullyConnected, node: Node) -> Value:
    data = node.input(0)
    if op.flatten and len(node.input_shape(0)) > len(node.shape):
        data = node.reshaped(data, (node.shape[0], -1))
    found = node.emit("MatMul", [data, node.transposed(node.input(1), (1, 0))])
    return found if op.no_bias else node.emit("Add", [found, node.input(2)])


@real_exporter(BatchDot)
def batch_dot(op: BatchDot, node: Node) -> Value:
    *outer, last, one = range(len(node.shape))
    sides = [
        node.transposed(node.input(i), (*outer, one, last)) if turned else node.input(i)
        for i, turned in enumerate((op.transpose_a, op.transpose_b))
    ]
    return node.emit("MatMul", sides)

"""Trained quantization: QuantizeLinear and DequantizeLinear, the operators on integers with scales, FakeQuantize.

An operator on integers is the float operator between a dequantize of each operand and a quantize of the result, which
is what it means; quantization makes integers of them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from mrt.errors import GraphError
from mrt.frontend.onnx.node import Node, Value, converter, find_converter
from mrt.frontend.shared.fake_quantize import fake_quantized
from mrt.frontend.shared.quantized import STORAGE, QuantizedConstant, dequantized_constant
from mrt.frontend.shared.quantizing import Scale, column_shape, dequantized, quantized, scale_for
from mrt.symbol import Array, Symbol


@converter("QuantizeLinear")
def quantize_linear(node: Node) -> Symbol:
    data = node.symbol(0)
    if not data.type.is_float:
        raise node.unsupported("the data", data.type, "a float")
    _check_whole_blocks(node)
    known = node.known(2, "y_zero_point") if node.has(2) else None
    stated = node.integer("output_dtype", 0)
    default = _type_word(node, stated) if stated else "uint8"
    return quantized(node, data, _scale_of(node, data.shape, 1, known, default, node.integer("axis", 1)))


@converter("DequantizeLinear")
def dequantize_linear(node: Node) -> Symbol:
    data = node.symbol(0)
    if not data.type.is_integer:
        raise node.unsupported("the data", data.type, "an integer")
    _check_whole_blocks(node)
    known = node.known(2, "x_zero_point") if node.has(2) else None
    return dequantized(node, data, _scale_of(node, data.shape, 1, known, data.dtype, node.integer("axis", 1)))


def quantized_form(node: Node) -> QuantizedConstant | None:
    """The quantized constant that a DequantizeLinear of constants is; None where graphs lack its integers.

    Scales of blocks are those of each element.
    """
    stored = node.known(0, "x")
    if stored.dtype.name not in STORAGE:
        return None
    known = node.known(2, "x_zero_point") if node.has(2) else None
    block = node.integer("block_size", 0)
    if block:
        return _of_blocks(node, stored, known, block)
    found = _scale_of(node, stored.shape, 1, known, stored.dtype.name, node.integer("axis", 1))
    return dequantized_constant(stored, found.scale, found.zero_point)


def scaled_form(node: Node, inputs: Sequence[Array | None]) -> QuantizedConstant | None:
    """The quantized constant that the product of one with floats is, or its quotient by them; None of others."""
    pair = [(value, node.scope.quantized(value)) for value in inputs if value is not None]
    if len(pair) != 2:
        return None
    (first, stored), (second, other) = pair
    if node.operator == "Div":
        with np.errstate(all="ignore"):
            return None if stored is None else stored.scaled(1 / second)
    if stored is not None and other is None:
        return stored.scaled(second)
    return other.scaled(first) if other is not None and stored is None else None


def _of_blocks(node: Node, stored: Array, zero_point: Array | None, block: int) -> QuantizedConstant | None:
    """Integers with one scale for each `block` of them along an axis, the last of which may be shorter.

    None where the scales have another shape.
    """
    scale = node.known(1, "scale").astype(np.float32)
    zero = np.zeros(scale.shape, np.int8) if zero_point is None else zero_point
    axis = node.axis(node.integer("axis", 1), stored.ndim)
    blocks = tuple(-(-size // block) if place == axis else size for place, size in enumerate(stored.shape))
    if block < 1 or scale.shape != blocks or zero.shape != blocks:
        return None
    within = np.arange(stored.shape[axis]) // block
    return dequantized_constant(stored, scale.take(within, axis), zero.take(within, axis))


def _check_whole_blocks(node: Node) -> None:
    size = node.integer("block_size", 0)
    if size:
        raise node.unsupported("attribute block_size", size, "one scale for the tensor or for each index of an axis")


def _type_word(node: Node, number: int) -> str:
    if number not in onnx.TensorProto.DataType.values():
        raise GraphError(f"{node.label}: attribute output_dtype is {number}; a tensor data type is needed")
    return str(onnx.TensorProto.DataType.Name(number)).lower()


def _scale_of(
    node: Node, shape: Sequence[int], index: int, zero_point: Array | None, kind: str, axis: int | None
) -> Scale:
    """The scale that input `index` gives a tensor of this shape, and its zero point, 0 where there is none."""
    scale = node.known(index, "scale").astype(np.float32)
    zero = np.zeros(scale.shape, np.int8) if zero_point is None else zero_point
    return scale_for(node, shape, scale, zero, kind if zero_point is None else zero.dtype.name, axis)


# Operators on integers with scales


@dataclass(frozen=True)
class _Form:
    """Where an operator on integers has its operands, each followed by scale and zero point, and those of its result.

    axes: of each operand, the axis along which its scales may lie. bias: integers at the product of the scales.
    """

    operator: str
    operands: tuple[int, ...]
    result: int | None
    axes: tuple[int | None, ...] = (None, None)
    bias: int | None = None


_FORMS = {
    "QLinearConv": _Form("Conv", (0, 3), 6, (None, 0), bias=8),
    "QLinearMatMul": _Form("MatMul", (0, 3), 6, (-2, -1)),
    "com.microsoft.QLinearAdd": _Form("Add", (0, 3), 6),
    "com.microsoft.QLinearMul": _Form("Mul", (0, 3), 6),
    "com.microsoft.QLinearSigmoid": _Form("Sigmoid", (0,), 3),
    "com.microsoft.QLinearLeakyRelu": _Form("LeakyRelu", (0,), 3),
    "com.microsoft.QLinearSoftmax": _Form("Softmax", (0,), 3),
    "com.microsoft.QLinearGlobalAveragePool": _Form("GlobalAveragePool", (0,), 3),
    "com.microsoft.QLinearAveragePool": _Form("AveragePool", (0,), 3),
}


@converter(*_FORMS)
def on_integers(node: Node) -> Symbol:
    return _between(node, _FORMS[node.key])


@converter("com.microsoft.QGemm")
def gemm(node: Node) -> Symbol:
    """Without a scale of the result that is a float."""
    axis = 0 if node.integer("transB", 0) else 1
    return _between(node, _Form("Gemm", (0, 3), 7 if node.has(7) else None, (None, axis), bias=6))


@converter("com.microsoft.QLinearConcat")
def concat(node: Node) -> Symbol:
    operands = tuple(range(2, len(node.proto.input), 3))
    return _between(node, _Form("Concat", operands, 0, (None,) * len(operands)))


def _between(node: Node, form: _Form) -> Symbol:
    """The float operator between dequantizes and a quantize."""
    if node.integer("channels_last", 0):
        raise node.unsupported("attribute channels_last", 1, "0")
    stated = node.integer("opset", node.opset)
    if (stated < _SOFTMAX_CHANGED) != (node.opset < _SOFTMAX_CHANGED):
        raise node.unsupported("attribute opset", stated, f"that of the model, {node.opset},")
    names = [_operand(node, index, axis) for index, axis in zip(form.operands, form.axes, strict=False)]
    if form.bias is not None and node.has(form.bias):
        names.append(_bias(node, form))
    result = float_operator(node, form.operator, names, "float" if form.result is not None else "")
    if form.result is None:
        return result
    known = node.known(form.result + 1, "zero point") if node.has(form.result + 1) else None
    return quantized(node, result, _scale_of(node, result.shape, form.result, known, "uint8", None))


def _operand(node: Node, index: int, axis: int | None) -> str:
    """The name of an operand as the real numbers that its integers stand for."""
    value = node.input(index)
    role = f"input{index}"
    dtype = value.dtype if isinstance(value, Symbol) else value.dtype.name
    known = node.known(index + 2, f"zero point of {role}") if node.has(index + 2) else None
    return _defined(node, value, _scale_of(node, node.shape(index), index + 1, known, dtype, axis), role)


def _bias(node: Node, form: _Form) -> str:
    """The name of the bias, int32 at the scale of the product: that of both operands, and the factor of QGemm."""
    first, second = (node.known(index + 1, "scale").astype(np.float32).reshape(-1) for index in form.operands)
    value = node.input(form.bias or 0)
    # A bias lies along the last axis, be it of a convolution's channels or of a product's columns.
    scale = np.asarray(first * second * np.float32(node.number("alpha", 1.0)), np.float32)
    column = scale if scale.size > 1 else scale.reshape(())
    return _defined(node, value, Scale(column, np.zeros(column.shape, np.int32), "int32"), "bias")


def _defined(node: Node, value: Value, scale: Scale, role: str) -> str:
    """The name of a new value: the real numbers that integers stand for."""
    name = node.scope.made_up(f"{node.name}_{role}")
    if isinstance(value, Symbol):
        node.scope.define(name, dequantized(node, value, scale, role))
        return name
    constant = dequantized_constant(value, scale.scale, scale.zero_point)
    if constant is None:
        raise node.unsupported(f"{role}'s type", value.dtype, f"one of {', '.join(STORAGE)}")
    values = constant.values()
    node.scope.keep_quantized(values, constant)
    node.scope.define(name, values)
    return name


_SOFTMAX_CHANGED = 13
"""The opset from which on Softmax is over one axis."""

_OWN_ATTRIBUTES = frozenset({"channels_last", "opset"})
"""What operators on integers have beside the attributes of the float operator."""


def float_operator(node: Node, operator: str, inputs: Sequence[str], suffix: str) -> Symbol:
    """The float operator with the node's attributes on named values."""
    output = node.scope.made_up(f"{node.name}_{suffix}") if suffix else node.name
    proto = onnx.helper.make_node(operator, list(inputs), [output], name=node.proto.name)
    proto.attribute.extend(item for item in node.proto.attribute if item.name not in _OWN_ATTRIBUTES)
    convert = find_converter(proto)
    made = None if convert is None else convert(Node(output, node.scope, proto))
    if not isinstance(made, Symbol):
        raise GraphError(f"{node.label}: has no operands that depend on the data; the model is malformed")
    return made


# Operators that give the integers of a sum of products


@converter("ConvInteger", "MatMulInteger")
def integer_product(node: Node) -> Symbol:
    """The sum of products of integers without their zero points, as a float: a cast to one behind it is nothing."""
    one = np.ones((), np.float32)
    names = []
    for index, (role, axis) in enumerate(zip("xw", (-2, 0 if node.operator == "ConvInteger" else -1), strict=True)):
        value = node.input(index)
        zero = node.known(index + 2, f"{role}_zero_point") if node.has(index + 2) else np.zeros((), np.int8)
        if isinstance(value, Symbol) and value.type.is_float:  # what was quantized dynamically
            names.append(node.proto.input[index])
            continue
        column = column_shape(node, zero.shape, node.shape(index), axis)
        dtype = value.dtype if isinstance(value, Symbol) else value.dtype.name
        stored = zero.astype(STORAGE[zero.dtype.name][0]).reshape(column)
        names.append(_defined(node, value, Scale(np.broadcast_to(one, stored.shape), stored, dtype), role))
    return float_operator(node, node.operator.removesuffix("Integer"), names, "")


@converter("com.microsoft.MatMulIntegerToFloat")
def product_as_float(node: Node) -> Symbol:
    """Operands, of which one that was quantized dynamically is a float already, their product, and a bias of floats."""
    return _with_bias(node, [_float_operand(node, 0, 2, 4, -2), _float_operand(node, 1, 3, 5, -1)], 6)


@converter("com.microsoft.DynamicQuantizeMatMul")
def dynamic_product(node: Node) -> Symbol:
    """The first operand is a float, which is quantized here by calibration."""
    return _with_bias(node, [node.proto.input[0], _float_operand(node, 1, 2, 3, -1)], 4)


def _float_operand(node: Node, index: int, scale: int, zero_point: int, axis: int) -> str:
    """The name of an operand as real numbers. scale, zero_point: the places of these inputs."""
    value = node.input(index)
    if isinstance(value, Symbol) and value.type.is_float:
        return str(node.proto.input[index])
    dtype = value.dtype if isinstance(value, Symbol) else value.dtype.name
    known = node.known(zero_point, "zero point") if node.has(zero_point) else None
    return _defined(node, value, _scale_of(node, node.shape(index), scale, known, dtype, axis), f"input{index}")


def _with_bias(node: Node, names: Sequence[str], bias: int) -> Symbol:
    product = float_operator(node, "MatMul", names, "product" if node.has(bias) else "")
    if not node.has(bias):
        return product
    name = node.scope.made_up(f"{node.name}_product_value")
    node.scope.define(name, product)
    return float_operator(node, "Add", [name, node.proto.input[bias]], "")


@converter("DynamicQuantizeLinear")
def dynamic_quantize_linear(node: Node) -> Symbol:
    """Where other operators than products of integers read it; see `dynamic_quantization`."""
    raise node.unsupported(
        "its scale",
        "computed from the data while the network runs, which a static integer network has no form for",
        "static quantization, such as quantize_static of ONNX Runtime,",
    )


@converter("org.openvinotoolkit.FakeQuantize")
def fake_quantize(node: Node) -> Value:
    """FakeQuantize, as OpenVINO writes it into ONNX files."""
    return fake_quantized(node, node.integer("levels", 0))

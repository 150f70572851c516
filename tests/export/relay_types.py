"""Relay's type relations, stated again: what type each call of a text has, from the types of its arguments alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mrt.frontend.relay.syntax import Call, Expression, Function, Local, OperatorName, Scalar, TensorSyntax, Tuple

Type = tuple[tuple[int, ...], str]
Attributes = Mapping[str, Any]
Relation = Callable[[Sequence[Type], Attributes], Type]

INTEGERS = ("int8", "uint8", "int16", "int32")
ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "clip": ("a_min", "a_max"),
    "cast": ("dtype",),
    "take": ("batch_dims", "axis", "mode"),
    **dict.fromkeys(("sum", "max", "min"), ("axis", "keepdims", "exclude")),
    **dict.fromkeys(("argmax", "argmin"), ("axis", "keepdims", "select_last_index", "exclude")),
    "reshape": ("newshape", "allowzero"),
    "transpose": ("axes",),
    "strided_slice": ("begin", "end", "strides", "slice_mode", "axes"),
    "concatenate": ("axis",),
    "tile": ("reps",),
    "repeat": ("repeats", "axis"),
    "nn.pad": ("pad_width", "pad_mode"),
    "nn.max_pool2d": ("pool_size", "strides", "dilation", "padding", "layout", "out_layout", "ceil_mode"),
    **dict.fromkeys(
        ("nn.conv2d", "nn.conv3d"),
        (
            *("strides", "padding", "dilation", "groups", "channels", "kernel_size"),
            *("data_layout", "kernel_layout", "out_layout", "out_dtype"),
        ),
    ),
    "nn.dense": ("units", "out_dtype"),
    "nn.batch_matmul": ("out_dtype", "transpose_a", "transpose_b"),
    "nn.bias_add": ("axis",),
}
"""The attributes of each operator in the order of their declaration, in which the printer writes them."""


def same_dtype(inputs: Sequence[Type]) -> str:
    """Relay promotes nothing: operands of two dtypes are an error."""
    (dtype,) = {dtype for _, dtype in inputs}
    return dtype


def broadcast(inputs: Sequence[Type], attributes: Attributes) -> Type:
    return tuple(np.broadcast_shapes(*(shape for shape, _ in inputs))), same_dtype(inputs)


def arithmetic(inputs: Sequence[Type], attributes: Attributes) -> Type:
    """On int32, in which nothing overflows as proven."""
    assert same_dtype(inputs) == "int32"
    return broadcast(inputs, attributes)


def clip(inputs: Sequence[Type], attributes: Attributes) -> Type:
    lo, hi = attributes["a_min"], attributes["a_max"]
    assert lo <= hi and lo == int(lo) and hi == int(hi) and float(f"{lo:.6g}") == lo and float(f"{hi:.6g}") == hi
    return arithmetic(inputs, attributes)


def cast(inputs: Sequence[Type], attributes: Attributes) -> Type:
    assert attributes["dtype"] in (*INTEGERS, "bool")
    return inputs[0][0], attributes["dtype"]


def array(kind: Type) -> np.ndarray:
    """An array of a type that takes no memory."""
    return np.broadcast_to(np.zeros((), kind[1]), kind[0])


def arranged(compute: Callable[[np.ndarray, Attributes], np.ndarray]) -> Relation:
    def relation(inputs: Sequence[Type], attributes: Attributes) -> Type:
        (kind,) = inputs
        return compute(array(kind), attributes).shape, kind[1]

    return relation


def strided(x: np.ndarray, a: Attributes) -> np.ndarray:
    assert a["axes"] is None and len(a["begin"]) == len(a["end"]) == len(a["strides"]) == x.ndim
    return x[tuple(slice(*cut) for cut in zip(a["begin"], a["end"], a["strides"], strict=True))]


def take(inputs: Sequence[Type], attributes: Attributes) -> Type:
    (shape, dtype), (indices, kind) = inputs
    axis = attributes["axis"]
    assert kind == "int32" and 0 <= axis < len(shape) and attributes.get("mode", "clip") in ("clip", "wrap")
    return (*shape[:axis], *indices, *shape[axis + 1 :]), dtype


def where(inputs: Sequence[Type], attributes: Attributes) -> Type:
    condition, *values = inputs
    assert condition[1] == "bool"
    return broadcast([(condition[0], same_dtype(values)), *values], attributes)


def reduce(inputs: Sequence[Type], attributes: Attributes) -> Type:
    ((shape, dtype),) = inputs
    assert dtype == "int32" and attributes["keepdims"] and all(0 <= axis < len(shape) for axis in attributes["axis"])
    return tuple(1 if axis in attributes["axis"] else n for axis, n in enumerate(shape)), dtype


def concatenate(inputs: Sequence[Type], attributes: Attributes) -> Type:
    return np.concatenate([array(kind) for kind in inputs], attributes.get("axis", 0)).shape, same_dtype(inputs)


def pad(inputs: Sequence[Type], attributes: Attributes) -> Type:
    (shape, dtype), fill = inputs
    assert fill == ((), dtype) and attributes.get("pad_mode", "constant") in ("constant", "edge", "reflect")
    return tuple(n + a + b for n, (a, b) in zip(shape, attributes["pad_width"], strict=True)), dtype


def windows(spatial: Sequence[int], kernel: Sequence[int], attributes: Attributes) -> tuple[int, ...]:
    rank = len(kernel)
    strides, dilation = (attributes.get(name, [1] * rank) for name in ("strides", "dilation"))
    padding = attributes["padding"]
    spans = [n + padding[i] + padding[rank + i] - dilation[i] * (kernel[i] - 1) - 1 for i, n in enumerate(spatial)]
    assert len(padding) == 2 * rank and min(spans) >= 0
    return tuple(span // step + 1 for span, step in zip(spans, strides, strict=True))


def max_pool(inputs: Sequence[Type], attributes: Attributes) -> Type:
    ((shape, dtype),) = inputs
    return (*shape[:2], *windows(shape[2:], attributes["pool_size"], attributes)), dtype


def convolution(inputs: Sequence[Type], attributes: Attributes) -> Type:
    (data, _), (weight, _) = inputs
    groups = attributes.get("groups", 1)
    assert same_dtype(inputs) == attributes["out_dtype"] == "int32"
    assert data[1] == weight[1] * groups and weight[0] % groups == 0
    assert (attributes["channels"], tuple(attributes["kernel_size"])) == (weight[0], weight[2:])
    return (data[0], weight[0], *windows(data[2:], weight[2:], attributes)), "int32"


def dense(inputs: Sequence[Type], attributes: Attributes) -> Type:
    (data, _), (weight, _) = inputs
    assert same_dtype(inputs) == attributes["out_dtype"] == "int32"
    assert len(data) == len(weight) == 2 and data[1] == weight[1] and attributes["units"] == weight[0]
    return (data[0], weight[0]), "int32"


def batch_matmul(inputs: Sequence[Type], attributes: Attributes) -> Type:
    (left, _), (right, _) = inputs
    assert same_dtype(inputs) == attributes["out_dtype"] == "int32" and attributes["transpose_b"]
    assert len(left) == len(right) == 3 and left[0] == right[0] and left[2] == right[2]
    return (left[0], left[1], right[1]), "int32"


def bias_add(inputs: Sequence[Type], attributes: Attributes) -> Type:
    (data, _), (bias, _) = inputs
    assert bias == (data[1],)
    return data, same_dtype(inputs)


RELATIONS: dict[str, Relation] = {
    **dict.fromkeys(("add", "subtract", "multiply", "maximum", "minimum"), arithmetic),
    **dict.fromkeys(("floor_divide", "floor_mod", "bitwise_and"), arithmetic),
    **dict.fromkeys(("left_shift", "right_shift", "abs", "negative", "nn.relu", "copy"), arithmetic),
    "clip": clip,
    "cast": cast,
    "take": take,
    "where": where,
    **dict.fromkeys(("sum", "max", "min", "argmax", "argmin"), reduce),
    "reshape": arranged(lambda x, a: np.zeros(()) if min(a["newshape"], default=1) < 1 else x.reshape(a["newshape"])),
    "transpose": arranged(lambda x, a: x.transpose(a["axes"])),
    "strided_slice": arranged(strided),
    "concatenate": concatenate,
    "tile": arranged(lambda x, a: np.tile(x, a["reps"])),
    "repeat": arranged(lambda x, a: np.repeat(x, a["repeats"], a["axis"])),
    "nn.pad": pad,
    "nn.max_pool2d": max_pool,
    "nn.conv2d": convolution,
    "nn.conv3d": convolution,
    "nn.dense": dense,
    "nn.batch_matmul": batch_matmul,
    "nn.bias_add": bias_add,
}


def infer(function: Function) -> tuple[dict[str, Type], list[Type], set[str]]:
    """The types of all bindings by name, those of the results, and the operators that are called.

    AssertionError, ValueError or KeyError where a call does not fit Relay's declarations.
    """
    types: dict[str, Any] = {}
    called: set[str] = set()
    for parameter in function.parameters:
        assert isinstance(parameter.type, TensorSyntax)
        types[parameter.name] = (parameter.type.shape, parameter.type.dtype)

    def of(expression: Expression) -> Any:
        if isinstance(expression, Local):
            return types[expression.name]
        if isinstance(expression, Scalar):
            return (), expression.value.dtype.name
        if isinstance(expression, Tuple):
            return [of(item) for item in expression.items]
        assert isinstance(expression, Call) and isinstance(expression.callee, OperatorName)
        operator, given = expression.callee.name, list(expression.attributes)
        assert given == [name for name in ATTRIBUTES.get(operator, ()) if name in given], (operator, given)
        called.add(operator)
        inputs = [of(argument) for argument in expression.arguments]
        return RELATIONS[operator](*inputs if operator == "concatenate" else [inputs], expression.attributes)

    for binding in function.body.bindings:
        types[binding.name] = of(binding.value)
    result = of(function.body.result)
    return types, result if isinstance(result, list) else [result], called

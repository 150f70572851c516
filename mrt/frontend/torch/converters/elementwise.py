"""Arithmetic with broadcasting, comparisons, logic, casts, and operators that change nothing."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from mrt.frontend.torch.node import Expression, Node, constant, converter

converter("alias.default", "clone.default", "detach.default")(lambda node: node.tensor("self"))
converter("_assert_tensor_metadata.default")(lambda node: None)

_ARITHMETIC: dict[str, Callable[..., Expression]] = {
    "add": relax.op.add,
    "div": relax.op.divide,
    "maximum": relax.op.maximum,
    "minimum": relax.op.minimum,
    "mul": relax.op.multiply,
    "sub": relax.op.subtract,
}


@converter("mul.Tensor", "mul.Scalar", "div.Tensor", "div.Scalar", "maximum.default", "minimum.default")
def arithmetic(node: Node) -> Expression:
    """In the dtype of the result, as PyTorch computes."""
    combine = _ARITHMETIC[node.operator.partition(".")[0]]
    return combine(node.operand("self", node.dtype), node.operand("other", node.dtype))


@converter("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar")
def linear(node: Node) -> Expression:
    """self + alpha other, or self - alpha other."""
    other = node.operand("other", node.dtype)
    if node.arguments["alpha"] != 1:
        other = node.emit(relax.op.multiply(other, node.operand("alpha", node.dtype)))
    return _ARITHMETIC[node.operator.partition(".")[0]](node.operand("self", node.dtype), other)


@converter("rsub.Tensor", "rsub.Scalar")
def subtracted_from(node: Node) -> Expression:
    """other - alpha self."""
    data = node.operand("self", node.dtype)
    if node.arguments["alpha"] != 1:
        data = node.emit(relax.op.multiply(data, node.operand("alpha", node.dtype)))
    return relax.op.subtract(node.operand("other", node.dtype), data)


@converter("div.Tensor_mode", "div.Scalar_mode")
def rounded_quotient(node: Node) -> Expression:
    """A quotient, rounded down or to 0, or as it is; of integers rounded down."""
    mode = node.arguments["rounding_mode"]
    if node.dtype != "float32" and mode == "floor":
        return relax.op.floor_divide(node.operand("self", node.dtype), node.operand("other", node.dtype))
    if node.dtype != "float32":
        raise node.unsupported("the data", node.dtype, "a float")
    quotient = node.emit(relax.op.divide(node.operand("self", node.dtype), node.operand("other", node.dtype)))
    return quotient if mode is None else {"floor": relax.op.floor, "trunc": relax.op.trunc}[mode](quotient)


@converter("remainder.Tensor", "remainder.Scalar", "fmod.Tensor", "fmod.Scalar", "floor_divide.default")
def remainder(node: Node) -> Expression:
    """What is left of a quotient rounded down, or to 0 (fmod, of floats), and that quotient."""
    combine = _DIVISIONS[node.operator.partition(".")[0]]
    return combine(node.operand("self", node.dtype), node.operand("other", node.dtype))


_DIVISIONS: dict[str, Callable[..., Expression]] = {
    "floor_divide": relax.op.floor_divide,
    "fmod": relax.op.mod,
    "remainder": relax.op.floor_mod,
}


@converter("pow.Scalar", "pow.Tensor_Scalar", "pow.Tensor_Tensor")
def power(node: Node) -> Expression:
    if node.dtype != "float32":
        raise node.unsupported("the data", node.dtype, "a float")
    return relax.op.power(node.operand("self", node.dtype), node.operand("exponent", node.dtype))


@converter("atan2.default")
def angle(node: Node) -> Expression:
    return relax.op.atan2(node.operand("self", node.dtype), node.operand("other", node.dtype))


@converter("hypot.default")
def length(node: Node) -> Expression:
    squares = [node.emit(relax.op.square(node.operand(name, node.dtype))) for name in ("self", "other")]
    return relax.op.sqrt(node.emit(relax.op.add(*squares)))


@converter("logaddexp.default")
def log_add_exp(node: Node) -> Expression:
    """max(x, y) + log(1 + exp(-|x - y|))."""
    x, y = (node.operand(name, node.dtype) for name in ("self", "other"))
    distance = node.emit(relax.op.abs(node.emit(relax.op.subtract(x, y))))
    rest = node.emit(relax.op.nn.softplus(node.emit(relax.op.negative(distance))))
    return relax.op.add(node.emit(relax.op.maximum(x, y)), rest)


_COMPARISONS: dict[str, Callable[..., Expression]] = {
    "eq": relax.op.equal,
    "ge": relax.op.greater_equal,
    "gt": relax.op.greater,
    "le": relax.op.less_equal,
    "lt": relax.op.less,
    "ne": relax.op.not_equal,
}


@converter(*(f"{name}.{overload}" for name in _COMPARISONS for overload in ("Tensor", "Scalar")))
def compare(node: Node) -> Expression:
    dtype = node.promoted("self", "other")
    # Truth values are compared as numbers.
    dtype = "int32" if dtype == "bool" else dtype
    return _COMPARISONS[node.operator.partition(".")[0]](node.operand("self", dtype), node.operand("other", dtype))


_LOGIC: dict[str, Callable[..., Expression]] = {
    "and": relax.op.logical_and,
    "or": relax.op.logical_or,
    "xor": relax.op.logical_xor,
}


@converter(*(f"logical_{name}.default" for name in _LOGIC), *(f"bitwise_{name}.Tensor" for name in _LOGIC))
def logic(node: Node) -> Expression:
    _check_truth(node)
    operator = node.operator.partition(".")[0].rpartition("_")[2]
    return _LOGIC[operator](node.operand("self", "bool"), node.operand("other", "bool"))


@converter("logical_not.default", "bitwise_not.default")
def negation(node: Node) -> Expression:
    _check_truth(node)
    return relax.op.logical_not(node.operand("self", "bool"))


def _check_truth(node: Node) -> None:
    if node.dtype != "bool":
        raise node.unsupported("the result", node.dtype, "a truth value")


@converter("_to_copy.default")
def cast(node: Node) -> Expression:
    return node.cast(node.tensor("self"), node.dtype)


@converter("clamp.default", "clamp.Tensor", "clamp_min.default", "clamp_max.default")
def clamp(node: Node) -> Expression:
    """Not below min, then not above max: what is above both ends, where they cross, is max."""
    data = node.operand("self", node.dtype)
    for end, bound in (("min", relax.op.maximum), ("max", relax.op.minimum)):
        if node.has(end):
            data = node.emit(bound(data, node.operand(end, node.dtype)))
    return data


@converter("hardtanh.default", "relu6.default")
def clip(node: Node) -> Expression:
    low, high = (0.0, 6.0) if node.operator == "relu6.default" else (node.number("min_val"), node.number("max_val"))
    return relax.op.minimum(node.emit(relax.op.maximum(node.tensor("self"), constant(low))), constant(high))

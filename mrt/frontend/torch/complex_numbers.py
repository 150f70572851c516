"""Complex tensors while a program is read: a pair of real ones, of which each operator makes another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import relax

from mrt.frontend.torch.node import Expression, Node, constant, shape_of

_LINEAR = frozenset({
    *("neg.default", "clone.default", "alias.default", "detach.default"),
    *("cat.default", "constant_pad_nd.default", "expand.default", "flip.default", "permute.default"),
    *("repeat.default", "roll.default", "select.int", "slice.Tensor", "squeeze.default", "squeeze.dim"),
    *("squeeze.dims", "unsqueeze.default", "view.default", "_unsafe_view.default", "index_select.default"),
    *("mean.dim", "sum.dim_IntList", "index.Tensor"),
})  # fmt: skip
"""Operators that make of real and imaginary parts, each alone, the parts of their result."""


_TRANSFORMS = frozenset({"_fft_c2c.default", "_fft_c2r.default"})
"""Operators whose converters take complex tensors."""


@dataclass(frozen=True)
class Complex:
    """The parts of a complex tensor, of one shape."""

    real: Expression
    imaginary: Expression


def converted(node: Node, convert: Callable[[Node], Any]) -> Any:
    """What a converter makes of a node that has complex tensors among its inputs.

    UnsupportedOperatorError for an operator that is not known to work on parts.
    """
    own = _OPERATORS.get(node.operator)
    if own is not None:
        return own(node)
    if node.operator in _TRANSFORMS:
        return convert(node)
    if node.arguments.get("value"):
        raise node.unsupported("argument value", node.arguments["value"], "0, since the data is complex,")
    if node.operator not in _LINEAR:
        raise node.unsupported("the data", "complex", "a real tensor, such as torch.view_as_real gives,")
    return Complex(*(_of_parts(node, convert, name) for name in ("real", "imaginary")))


def is_complex(node: Node) -> bool:
    return any(isinstance(node.importer.env[source], Complex) for source in node.fx.all_input_nodes)


def _of_parts(node: Node, convert: Callable[[Node], Any], name: str) -> Expression:
    """What the converter gives for one part of every complex input; of a real one the imaginary part is 0."""
    given = {source: node.importer.env[source] for source in node.fx.all_input_nodes}
    try:
        for source, value in given.items():
            node.importer.env[source] = _part(node, source, value, name)
        return node.emit(convert(node))
    finally:
        node.importer.env.update(given)


def _part(node: Node, source: Any, value: Any, name: str) -> Any:
    if isinstance(value, Complex):
        return getattr(value, name)
    dtype = source.meta["val"].dtype
    is_number = dtype.is_floating_point or dtype.is_complex
    if name == "real" or not is_number:
        return value
    return node.emit(relax.op.full(node.made(*shape_of(value)), constant(0), "float32"))


def _parts(node: Node, name: str) -> tuple[Expression, Expression | None]:
    """A tensor's parts; no imaginary one of a real tensor or number."""
    given = node.arguments[name]
    value = node.importer.env[given] if hasattr(given, "meta") else node.operand(name, "float32")
    return (value.real, value.imaginary) if isinstance(value, Complex) else (value, None)


def _product(node: Node) -> Complex:
    """(a + b i)(c + d i) = (a c - b d) + (a d + b c) i."""
    (a, b), (c, d) = _parts(node, "self"), _parts(node, "other")

    def times(x: Expression, y: Expression) -> Expression:
        return node.emit(relax.op.multiply(x, y))

    if b is None or d is None:
        return Complex(times(a, c), times(b, c) if d is None else times(a, d))
    real = node.emit(relax.op.subtract(times(a, c), times(b, d)))
    return Complex(real, node.emit(relax.op.add(times(a, d), times(b, c))))


def _sum(node: Node) -> Complex:
    """Real parts and imaginary parts, of which a real tensor or number has none."""
    (a, b), (c, d) = _parts(node, "self"), _parts(node, "other")
    if node.operator.startswith("rsub"):
        (a, b), (c, d) = (c, d), (a, b)
    combine = relax.op.add if node.operator.startswith("add") else relax.op.subtract
    if node.arguments["alpha"] != 1:
        factor = node.operand("alpha", "float32")
        c, d = (None if part is None else node.emit(relax.op.multiply(part, factor)) for part in (c, d))
    shape = node.shape

    def whole(part: Expression) -> Expression:
        return part if shape_of(part) == shape else node.emit(relax.op.broadcast_to(part, shape))

    real = node.emit(combine(a, c))
    if b is None:
        return Complex(real, whole(d if combine is relax.op.add else node.emit(relax.op.negative(d))))
    return Complex(real, whole(b) if d is None else node.emit(combine(b, d)))


def _quotient(node: Node) -> Complex:
    (a, b), (c, d) = _parts(node, "self"), _parts(node, "other")
    if b is None or d is not None:
        raise node.unsupported("the divisor", "complex", "a real one")
    return Complex(node.emit(relax.op.divide(a, c)), node.emit(relax.op.divide(b, c)))


def _only(node: Node) -> tuple[Expression, Expression]:
    value: Complex = node.importer.env[node.fx.all_input_nodes[0]]
    return value.real, value.imaginary


def _as_real(node: Node) -> Expression:
    real, imaginary = _only(node)
    return relax.op.stack([real, imaginary], len(shape_of(real)))


def _magnitude(node: Node) -> Expression:
    squares = [node.emit(relax.op.square(part)) for part in _only(node)]
    return relax.op.sqrt(node.emit(relax.op.add(*squares)))


def _angle(node: Node) -> Expression:
    real, imaginary = _only(node)
    return relax.op.atan2(imaginary, real)


def _conjugate(node: Node) -> Complex:
    real, imaginary = _only(node)
    return Complex(real, node.emit(relax.op.negative(imaginary)))


_OPERATORS: dict[str, Callable[[Node], Any]] = {
    "abs.default": _magnitude,
    "add.Tensor": _sum,
    "angle.default": _angle,
    "_conj.default": _conjugate,
    "_conj_physical.default": _conjugate,
    "div.Tensor": _quotient,
    "imag.default": lambda node: _only(node)[1],
    "mul.Tensor": _product,
    "real.default": lambda node: _only(node)[0],
    **dict.fromkeys(("add.Scalar", "rsub.Scalar", "rsub.Tensor", "sub.Scalar", "sub.Tensor"), _sum),
    "div.Scalar": _quotient,
    "mul.Scalar": _product,
    "view_as_real.default": _as_real,
}
"""Operators that mean something else of complex tensors than of their parts."""

COMPLEX_ALONE = frozenset({
    *("_conj.default", "_conj_physical.default", "angle.default"),
    *("imag.default", "real.default", "view_as_real.default"),
})  # fmt: skip
"""Those of them that are not read of real tensors."""

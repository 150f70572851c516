"""Fourier transforms of constant length, as products with matrices of cosines and sines, and complex tensors."""

from __future__ import annotations

import math

from tvm import relax

from mrt.frontend.shared.spectrum import real_synthesis, waves
from mrt.frontend.torch.building import mapped, part
from mrt.frontend.torch.complex_numbers import COMPLEX_ALONE, Complex
from mrt.frontend.torch.node import Expression, Node, constant, converter, shape_of
from mrt.symbol import Array


@converter(*sorted(COMPLEX_ALONE))
def of_real_data(node: Node) -> Expression:
    raise node.unsupported("the data", "real", "a complex tensor")


@converter("complex.default")
def joined(node: Node) -> Complex:
    return Complex(node.tensor("real"), node.tensor("imag"))


@converter("polar.default")
def polar(node: Node) -> Complex:
    length, angle = node.tensor("abs"), node.tensor("angle")
    return Complex(*(node.emit(relax.op.multiply(length, node.emit(f(angle)))) for f in (relax.op.cos, relax.op.sin)))


@converter("view_as_complex.default")
def view_as_complex(node: Node) -> Complex:
    data = node.tensor("self")
    last = len(shape_of(data)) - 1
    parts = [node.emit(part(data, last, place, place + 1)) for place in range(2)]
    return Complex(*(node.emit(relax.op.squeeze(each, [last])) for each in parts))


@converter("_fft_r2c.default")
def of_real(node: Node) -> Complex:
    """Of the last axis that is named, all coefficients or, if onesided, half of them."""
    data = node.operand("self", "float32")
    *others, last = [axis % len(shape_of(data)) for axis in node.integers("dim")]
    length = shape_of(data)[last]
    cosines, sines = _waves(node, length, length // 2 + 1 if node.flag("onesided") else length, False)
    found = Complex(mapped(node, data, last, cosines), mapped(node, data, last, sines))
    return _scaled(node, _along(node, found, others, False), math.prod(shape_of(data)[a] for a in (*others, last)))


@converter("_fft_c2c.default")
def of_complex(node: Node) -> Complex:
    data, inverse = node.importer.env[node.arguments["self"]], not node.flag("forward")
    shape = shape_of(data.real if isinstance(data, Complex) else data)
    first, *others = [axis % len(shape) for axis in node.integers("dim")]
    if not isinstance(data, Complex):
        start = _waves(node, shape[first], shape[first], inverse)
        data = Complex(*(node.emit(mapped(node, data, first, matrix)) for matrix in start))
    else:
        others.append(first)
    found, axes = _along(node, data, others, inverse), {first, *others}
    return _scaled(node, found, math.prod(shape[axis] for axis in axes))


@converter("_fft_c2r.default")
def to_real(node: Node) -> Expression:
    """The real signal of which the last axis that is named holds half of the coefficients."""
    data, length = node.importer.env[node.arguments["self"]], node.integer("last_dim_size")
    if not isinstance(data, Complex):
        raise node.unsupported("the data", "real", "a complex tensor")
    shape = shape_of(data.real)
    *others, last = [axis % len(shape) for axis in node.integers("dim")]
    if shape[last] != length // 2 + 1:
        raise node.unsupported(
            "the number of coefficients", shape[last], f"{length // 2 + 1}, which is half of {length},"
        )
    data = _along(node, data, others, True)
    node.made(length, shape[last])
    factor = _factor(node, math.prod((length, *(shape[axis] for axis in others))))
    matrices = [matrix * factor for matrix in real_synthesis(length)]
    parts = [mapped(node, each, last, m) for each, m in zip((data.real, data.imaginary), matrices, strict=True)]
    return relax.op.add(*(node.emit(each) for each in parts))


def _waves(node: Node, length: int, count: int, inverse: bool) -> tuple[Array, Array]:
    node.made(length, count)
    return waves(length, count, inverse)


def _along(node: Node, data: Complex, axes: list[int], inverse: bool) -> Complex:
    for axis in axes:
        length = shape_of(data.real)[axis]
        data = _times(node, data, axis, *_waves(node, length, length, inverse))
    return data


def _times(node: Node, data: Complex, axis: int, cosines: Array, sines: Array) -> Complex:
    a, b = data.real, data.imaginary
    products = [
        node.emit(mapped(node, each, axis, m)) for each, m in ((a, cosines), (b, sines), (a, sines), (b, cosines))
    ]
    return Complex(node.emit(relax.op.subtract(*products[:2])), node.emit(relax.op.add(*products[2:])))


def _factor(node: Node, count: int) -> float:
    """PyTorch's normalizations: none, by the root of the number of elements, by that number."""
    return (1.0, count**-0.5, 1 / count)[node.integer("normalization")]


def _scaled(node: Node, data: Complex, count: int) -> Complex:
    factor = _factor(node, count)
    if factor == 1:
        return Complex(node.emit(data.real), node.emit(data.imaginary))
    return Complex(*(node.emit(relax.op.multiply(each, constant(factor))) for each in (data.real, data.imaginary)))

"""Fourier transforms of constant length, as products with matrices of cosines and sines: DFT, STFT."""

from __future__ import annotations

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.onnx.node import Node, converter
from mrt.frontend.shared.mapping import mapped
from mrt.frontend.shared.shaping import expanded, reshaped
from mrt.frontend.shared.slicing import sliced
from mrt.frontend.shared.spectrum import real_synthesis, waves
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastSub
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.transform import Concat, SliceAxis, Take


@converter("DFT")
def fourier(node: Node) -> Symbol:
    """Real and imaginary parts along the last axis; data without one is real. A onesided inverse gives real data."""
    data = node.symbol(0)
    rank = data.type.rank
    if rank < 2 or data.shape[-1] not in (1, 2):
        raise GraphError(f"{node.label}: data is {data.type}; a last axis of 1 or 2 is needed")
    axis = _axis(node, rank)
    inverse, onesided = bool(node.integer("inverse", 0)), bool(node.integer("onesided", 0))
    given = node.given_integers(1, "dft_length")
    held = data.shape[axis]
    length = given[0] if given else 2 * (held - 1) if inverse and onesided else held
    node.made((length, length))
    data = _resized(node, data, axis, length // 2 + 1 if inverse and onesided else length)
    if inverse and onesided:
        return _synthesized(node, data, axis, length)
    cosines, sines = waves(length, length // 2 + 1 if onesided else length, inverse)
    factor = 1 / length if inverse else 1.0
    return _transformed(node, data, axis, cosines * factor, sines * factor)


def _axis(node: Node, rank: int) -> int:
    """An attribute, 1 by default, before opset 20, then an input, the last but one by default."""
    given = (node.integer("axis", 1),) if node.opset < 20 else node.given_integers(2, "axis") or (-2,)
    axis = node.axis(given[0], rank)
    if axis == rank - 1:
        raise GraphError(f"{node.label}: axis is {given[0]}, along which real and imaginary parts lie")
    return axis


def _resized(node: Node, data: Symbol, axis: int, length: int) -> Symbol:
    """`data` cut, or with zeros behind, to a length."""
    size = data.shape[axis]
    if size > length:
        return sliced(node, data, {axis: slice(0, length)}, "cut")
    if size == length:
        return data
    widths = [0] * (2 * data.type.rank)
    widths[2 * axis + 1] = length - size
    return node.apply(Pad(pad_width=tuple(widths)), [data], "longer")


def _part(node: Node, data: Symbol, place: int) -> Symbol:
    operator = SliceAxis(axis=data.type.rank - 1, begin=place, end=place + 1)
    return node.apply(operator, [data], "imaginary" if place else "real")


def _transformed(node: Node, data: Symbol, axis: int, cosines: Array, sines: Array) -> Symbol:
    """(a + b i)(c + d i) = (a c - b d) + (a d + b c) i, c and d being matrices."""
    last = data.type.rank - 1
    a = data if data.shape[-1] == 1 else _part(node, data, 0)
    real, imaginary = mapped(node, a, axis, cosines, "real_cosines"), mapped(node, a, axis, sines, "real_sines")
    if data.shape[-1] == 2:
        b = _part(node, data, 1)
        real = node.apply(BroadcastSub(), [real, mapped(node, b, axis, sines, "imaginary_sines")], "real_sum")
        both = [imaginary, mapped(node, b, axis, cosines, "imaginary_cosines")]
        imaginary = node.apply(BroadcastAdd(), both, "imaginary_sum")
    return node.apply(Concat(dim=last), [real, imaginary])


def _synthesized(node: Node, data: Symbol, axis: int, length: int) -> Symbol:
    """The real signal of which half of the coefficients are given."""
    of_real, of_imaginary = real_synthesis(length)
    real = mapped(node, _part(node, data, 0), axis, of_real / length, "of_real")
    if data.shape[-1] == 1:
        return real
    imaginary = mapped(node, _part(node, data, 1), axis, of_imaginary / length, "of_imaginary")
    return node.apply(BroadcastAdd(), [real, imaginary])


@converter("STFT")
def short_time_fourier(node: Node) -> Symbol:
    """Frames of a signal (N, length) or (N, length, 1), each times the window: (N, frames, coefficients, 2)."""
    signal = node.symbol(0)
    if signal.type.rank not in (2, 3) or signal.shape[2:] not in ((), (1,)):
        raise node.unsupported("the signal", signal.type, "a real one, (N, length) or (N, length, 1),")
    (step,) = node.known_integers(1, "frame_step")
    window = node.known(2, "window").reshape(-1) if node.has(2) else None
    given = node.given_integers(3, "frame_length")
    length = given[0] if given else len(window) if window is not None else 0
    if step < 1 or not 1 <= length <= signal.shape[1] or (window is not None and len(window) != length):
        raise GraphError(
            f"{node.label}: frames of length {length}, step {step} do not fit {signal.type} and the window"
        )
    starts = np.arange(0, signal.shape[1] - length + 1, step)
    places = starts[:, None] + np.arange(*node.made((length,)))
    node.made(places.shape)
    flat = reshaped(node, signal, signal.shape[:2], "signal")
    taken = node.apply(Take(axis=1), [flat, node.parameter(places.reshape(-1).astype(np.int32), "places")], "taken")
    frames = reshaped(node, taken, (signal.shape[0], *places.shape), "frames")
    cosines, sines = waves(length, length // 2 + 1 if node.integer("onesided", 1) else length)
    weights = np.ones(length) if window is None else window
    real, imaginary = (
        expanded(node, mapped(node, frames, 2, wave * weights, name), (3,), f"{name}_part")
        for wave, name in ((cosines, "real"), (sines, "imaginary"))
    )
    return node.apply(Concat(dim=3), [real, imaginary])

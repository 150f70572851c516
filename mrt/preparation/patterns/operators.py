"""Makes the operators that recognised normalisations become."""

from __future__ import annotations

import math

import numpy as np

from mrt.preparation.constants import add_constant, multiply_by_constant
from mrt.preparation.patterns.normalization import Normalization
from mrt.symbol import Array, GraphBuilder, Symbol
from mrt.symbol.operators.instance_normalization import InstanceNorm, L2Normalization
from mrt.symbol.operators.normalization import LayerNorm
from mrt.symbol.operators.transform import Reshape, Transpose


def make_normalization(found: Normalization, data: Symbol, name: str, builder: GraphBuilder) -> Symbol:
    """The normalisation of `data` as one operator, under `name`.

    1. By mean and variance over one axis: LayerNorm; over all axes after the channels: InstanceNorm, where gain and
       shift lie along the channels; over other last axes: LayerNorm of these made one.
    2. By the length over the channels, over all axes after them, or over all but the first: L2Normalization; over other
       last axes: the same of (N, others, these).
    3. Over other axes: the same, these moved to the end.
    4. A gain or shift that the operator does not take: multiplied and added behind.
    """
    steps = _Steps(found, name, builder)
    axes, rank = found.axes, data.type.rank
    trailing = tuple(range(rank - len(axes), rank))
    single = (found.centred and len(axes) == 1) or (not found.centred and axes in _l2_modes(rank))
    if single or axes == trailing:
        made, gain, shift = steps.last(data, axes, found.gain, found.shift)
    else:
        order = [*(axis for axis in range(rank) if axis not in axes), *axes]
        moved = builder.apply(Transpose(axes=tuple(order)), [data], f"{name}_moved")
        made, gain, shift = steps.last(
            moved, trailing, np.transpose(found.gain, order), np.transpose(found.shift, order)
        )
        back = tuple(np.argsort(order).tolist())
        gain, shift = np.transpose(gain, back), np.transpose(shift, back)
        made = builder.apply(Transpose(axes=back), [made], steps.name(gain, shift, "moved_back"))
    if (gain != 1).any():
        made = multiply_by_constant(builder, made, gain, f"{name}_scaled" if shift.any() else name, f"{name}_gamma")
    return add_constant(builder, made, shift, name, f"{name}_beta") if shift.any() else made


def _l2_modes(rank: int) -> dict[tuple[int, ...], str]:
    """The axes that L2Normalization sums over, and their modes."""
    modes = {(1,): "channel", tuple(range(1, rank)): "instance"}
    return {**modes, tuple(range(2, rank)): "spatial"} if rank > 2 else modes


class _Steps:
    """Applies the operator of a normalisation; the last symbol has the name."""

    def __init__(self, found: Normalization, name: str, builder: GraphBuilder) -> None:
        self._found, self._name, self._builder = found, name, builder

    def name(self, gain: Array, shift: Array, suffix: str) -> str:
        """The name itself where nothing follows."""
        return f"{self._name}_{suffix}" if (gain != 1).any() or shift.any() else self._name

    def last(self, data: Symbol, axes: tuple[int, ...], gain: Array, shift: Array) -> tuple[Symbol, Array, Array]:
        """`data` normalised over its last axes, or over one, and what is left of gain and shift."""
        if not self._found.centred:
            return self._by_length(data, axes, gain, shift), gain, shift
        one, zero = np.ones((1,) * data.type.rank), np.zeros((1,) * data.type.rank)
        along = _varies(gain) | _varies(shift)
        if axes == tuple(range(2, data.type.rank)) and (len(axes) > 1 or 1 in along) and along <= {1}:
            vectors = self._vectors(gain, shift, data.shape[1], data.dtype)
            return self._builder.apply(InstanceNorm(eps=self._found.eps), [data, *vectors], self._name), one, zero
        if not along <= set(axes):
            return self._layer(data, axes, one, zero, self.name(gain, shift, "normalized")), gain, shift
        return self._layer(data, axes, gain, shift, self._name), one, zero

    def _layer(self, data: Symbol, axes: tuple[int, ...], gain: Array, shift: Array, name: str) -> Symbol:
        """LayerNorm over one axis, or over the last ones made one."""
        if len(axes) == 1:
            vectors = self._vectors(gain, shift, data.shape[axes[0]], data.dtype)
            return self._builder.apply(LayerNorm(axis=axes[0], eps=self._found.eps), [data, *vectors], name)
        spread = tuple(length if axis in axes else 1 for axis, length in enumerate(data.shape))
        size = math.prod(spread)
        flat = [np.broadcast_to(part, spread).reshape(-1) for part in (gain, shift)]
        merged = self._reshaped(data, (*data.shape[: axes[0]], size), f"{self._name}_merged")
        inputs = [merged, *self._vectors(flat[0], flat[1], size, data.dtype)]
        made = self._builder.apply(LayerNorm(axis=-1, eps=self._found.eps), inputs, f"{self._name}_layer")
        return self._reshaped(made, data.shape, name)

    def _vectors(self, gain: Array, shift: Array, length: int, dtype: str) -> list[Symbol]:
        parts = ((gain, "gamma"), (shift, "beta"))
        return [
            self._builder.parameter(f"{self._name}_{role}", np.broadcast_to(part.reshape(-1), length).astype(dtype))
            for part, role in parts
        ]

    def _by_length(self, data: Symbol, axes: tuple[int, ...], gain: Array, shift: Array) -> Symbol:
        mode = _l2_modes(data.type.rank).get(axes)
        if mode is not None:
            operator = L2Normalization(eps=self._found.eps, mode=mode)
            return self._builder.apply(operator, [data], self.name(gain, shift, "length_one"))
        others, size = data.shape[1 : axes[0]], math.prod(data.shape[axes[0] :])
        merged = self._reshaped(data, (data.shape[0], math.prod(others), size), f"{self._name}_merged")
        operator = L2Normalization(eps=self._found.eps, mode="spatial")
        made = self._builder.apply(operator, [merged], f"{self._name}_length_one")
        return self._reshaped(made, data.shape, self.name(gain, shift, "apart"))

    def _reshaped(self, data: Symbol, shape: tuple[int, ...], name: str) -> Symbol:
        """`data` in a shape that keeps axis 0, whatever its length will be."""
        return data if shape == data.shape else self._builder.apply(Reshape(shape=(0, *shape[1:])), [data], name)


def _varies(values: Array) -> set[int]:
    """The axes along which a constant has more than one value."""
    return {axis for axis, length in enumerate(values.shape) if length > 1 and (values != values.take([0], axis)).any()}

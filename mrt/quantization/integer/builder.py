"""Building the integer graph: symbols that stand for real values, rescaled by multipliers that their bounds allow."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from mrt.calibration import Calibration
from mrt.errors import QuantizationError
from mrt.quantization.algorithms.algorithm import UnroundedWeight
from mrt.quantization.algorithms.nearest_rounding import nearest_integers
from mrt.quantization.integer.integer_symbols import IntegerSymbols, magnitudes_like
from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.integer.requantize import Multiplier, fit_multiplier
from mrt.quantization.integer.rounder import AsAsked, Rounder
from mrt.quantization.quantizer import ChannelGroups, Target
from mrt.symbol import Array, Symbol, TensorType
from mrt.symbol.operators.activation import Clip
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.rounding import SIGN

SAME_SCALE = 1e-9
"""Two scales that differ by less than this share are one: the difference is float64 rounding."""
SAME_EXACT_SCALE = 2.0**-22
"""The same for scales of trained quantization, which come from float32 limits."""


class IntegerBuilder(IntegerSymbols):
    """Integer symbols, and what they stand for: real = scale * (q - zero_point)."""

    def __init__(
        self, reserved: Iterable[str], observed: Calibration | None = None, rounder: Rounder | None = None
    ) -> None:
        super().__init__(reserved)
        self.observed = observed or Calibration({})
        """What calibration observed, for algorithms that round weights."""
        self.rounder = rounder or AsAsked(self.observed)
        """Quantizes the weights of reductions."""
        self._requantized: dict[_Request, Quantized] = {}
        self.scales: dict[str, Array] = {}
        """The scale of every symbol that stands for real values, by name."""
        self.zero_points: dict[str, Array] = {}
        """The zero points of those symbols, where they are not 0."""
        self.dequantized_weight: Callable[[], Array] | None = None
        """Gives what the integer weight stands for, if the operator made last is a reduction."""
        self.notes: list[str] = []
        """What was given up to stay within 32 bits, and the error that was accepted."""

    def begin(self, symbol: Symbol) -> None:
        super().begin(symbol)
        self.dequantized_weight = None

    def input(self, name: str, type: TensorType, target: Target) -> Quantized:
        """A graph input of integers in [target.lo, target.hi]."""
        return self.quantized(self.variable(name, type, target.lo, target.hi), target.scale, target.zero_point)

    def quantized(
        self, symbol: Symbol, scale: float | Array, zero_point: int | Array = 0, groups: ChannelGroups | None = None
    ) -> Quantized:
        """`symbol` standing for real = scale * (q - zero_point); noted for the tables."""
        result = Quantized.of(symbol, scale, zero_point, groups)
        if symbol.name not in self.scales:
            self.scales[symbol.name] = result.scale
            if not result.is_centred:
                self.zero_points[symbol.name] = result.zero_points
        return result

    def like(self, symbol: Symbol, value: Quantized) -> Quantized:
        """`symbol`, of the same rank and channels as `value`, standing for reals in the same way."""
        return self.quantized(symbol, value.scale, value.zero_points, value.groups)

    def form(self, value: Quantized, target: Target | None) -> Symbol:
        """What `value` at the target (None for any form) is computed from, as far as it was made already."""
        made = value if target is None else self._requantized.get(_request(value, target), value)
        return self.without_constant(made.symbol)

    def constant_at(self, name: str, values: Array, target: Target, dtype: str | None = None) -> Quantized:
        """Float `values` quantized at a target: rounded half away from zero, moved by the zero point, saturated.

        dtype: in which they are stored, the narrowest by default.
        """
        flat = np.asarray(values).reshape(-1)
        scale, zero_point = (np.broadcast_to(each, flat.shape) for each in (target.scale, target.zero_point))
        integers = nearest_integers(UnroundedWeight(flat, scale, zero_point, target.lo, target.hi))
        stored = self.constant(name, integers.reshape(np.shape(values)), dtype)
        return self.quantized(stored, target.scale, target.zero_point)

    def centred(self, value: Quantized) -> Quantized:
        """`value` with zero point 0: the zero point is subtracted, exactly, in int32."""
        if value.is_centred:
            return value
        centred = self.add_constant(value.symbol, f"{self._origin}_zero_point", -value.zero_points, "_centred")
        return self.quantized(centred, value.scale, 0, value.groups and value.groups.centred)

    def grouped(self, symbol: Symbol, step: float, groups: ChannelGroups | None) -> Quantized:
        """`symbol`, centred, at `step` times the factor of each channel group; one scale where all groups are alike."""
        if groups is None or len(set(groups.factors)) == 1:
            return self.quantized(symbol, step * (1 if groups is None else groups.factors[0]))
        return self.quantized(symbol, step * groups.spread(groups.factors, symbol.shape), 0, groups.centred)

    def at_one_scale(self, value: Quantized) -> Quantized:
        """`value` at the common scale of its channel groups, centred: integers times their group's factor, exactly."""
        if value.groups is None:
            return value
        value = self.centred(value)
        symbol, groups = value.symbol, value.groups
        if groups is not None and set(groups.factors) != {1}:
            factors = groups.spread(groups.factors, symbol.shape)
            symbol = self.apply(BroadcastMul(), [symbol, self.constant(f"{symbol.name}_factors", factors)], "_common")
        return self.quantized(symbol, value.step)

    def requantize(self, value: Quantized, target: Target) -> Quantized:
        """`value` at the target: multiplied in integers, rounded half up, saturated to [lo, hi], stored narrow.

        A free target takes the scale that the multiplier really gives, and a value that already fits it stays.
        """
        key = _request(value, target)
        if key not in self._requantized:
            self._requantized[key] = self._requantize(value, target)
        return self._requantized[key]

    def rounded(self, value: Quantized, steps: Array, offset: Array, lo: int, hi: int) -> Symbol:
        """clip(round(x / steps + offset), lo, hi) of the real x, rounded once, stored narrow.

        steps: positive, offset: float64, both of the rank of `value`, each axis 1 or full.
        """
        value = self.centred(value)
        whole = np.rint(offset)
        top = max(hi - int(whole.min()), int(whole.max()) - lo)
        symbol = self.rounded_once(value.symbol, value.scale / steps, offset - whole, top)
        if whole.any():
            symbol = self.add_constant(symbol, f"{self._origin}_zero_point", whole.astype(np.int64), "_moved")
        return self.narrow(symbol, lo, hi)

    def _requantize(self, value: Quantized, target: Target) -> Quantized:
        bounds = self.bounds(value.symbol)
        fits = bounds.min >= target.lo and bounds.max <= target.hi
        scales = target.scales(value.symbol.shape)
        ratio = value.scale / scales
        if (ratio == ratio.flat[0]).all():
            ratio = _first(ratio)
        if fits and not target.pinned and _along_one_axis(value.groups, target.groups):
            return value
        if fits and not target.pinned and value.is_uniform:
            return value.uniform
        is_same = np.allclose(ratio, 1.0, rtol=SAME_EXACT_SCALE if target.exact else SAME_SCALE, atol=0)
        if is_same and target.rounding != SIGN:
            return self._settled(value.symbol, target, scales, value.zero_points)
        value = self.centred(value)
        if target.exact:
            symbol, zero_points = self._rounded_to(value.symbol, ratio, target)
            return self._settled(symbol, target, scales, zero_points)
        symbol, multiplier = self._fit(value, target, ratio)
        symbol = self.multiplied(symbol, multiplier)
        if multiplier.ratio.size == 1 and not target.pinned:
            real = float(multiplier.ratio.reshape(-1)[0])
            moved = value.scale if target.groups else _first(value.scale)
            scales = moved / real if real > 0 else scales
        return self._settled(symbol, target, scales, np.zeros((), np.int64))

    def _rounded_to(self, symbol: Symbol, ratio: Array, target: Target) -> tuple[Symbol, Array]:
        """round(x ratio) of a centred x as an exact target rounds it, and the zero points that it has then."""
        nothing = np.zeros((1,) * ratio.ndim)
        if target.rounding == SIGN:
            return self.sign_of(symbol), nothing.astype(np.int64)
        if not target.zero_point_first:
            symbol = self.rounded_once(symbol, ratio, nothing, target.reach, target.rounding)
            return symbol, nothing.astype(np.int64)
        zero_points = target.zero_points(symbol.shape)
        part = zero_points.astype(np.float64)
        return self.rounded_once(symbol, ratio, part, target.reach, target.rounding), zero_points

    def _fit(self, value: Quantized, target: Target, ratio: Array) -> tuple[Symbol, Multiplier]:
        """The multiplier, and the symbol to apply it to: clipped first where the product would not fit otherwise."""
        symbol = value.symbol
        top = target.reach
        limit = int(np.ceil((top + 1) / ratio.min())) + 1
        bounds = self.bounds(symbol)
        if ratio.max() * bounds.magnitude > 2**30 and limit < bounds.magnitude:
            symbol = self.apply(Clip(a_min=float(-limit), a_max=float(limit)), [symbol], "_saturated")
            bounds = self.bounds(symbol)
        magnitudes = magnitudes_like(bounds, ratio)
        try:
            return symbol, fit_multiplier(ratio, magnitudes, top, at_most=ratio.size == 1 and not target.pinned)
        except QuantizationError as error:
            raise QuantizationError(f"{self._origin}: {error}; widen its range or lower its bits") from None

    def _settled(self, symbol: Symbol, target: Target, scales: Array, zero_points: Array) -> Quantized:
        """`symbol`, with these zero points, at the target's zero points, saturated and stored narrow."""
        wanted = target.zero_points(symbol.shape)
        move = wanted - zero_points
        if move.any():
            symbol = self.add_constant(symbol, f"{self._origin}_zero_point", move, "_moved")
        return self.quantized(self.narrow(symbol, target.lo, target.hi), scales, wanted, target.groups)


_Request = tuple[Symbol, bytes, bytes, Target]


def _request(value: Quantized, target: Target) -> _Request:
    """What tells one requantization from another: the integers, what they stand for, and the form that is wanted."""
    return value.symbol, value.scale.tobytes(), value.zero_points.tobytes(), target


def _first(values: Array) -> Array:
    """One of the values, of their rank."""
    return values[(slice(1),) * values.ndim]


def _along_one_axis(groups: ChannelGroups | None, others: ChannelGroups | None) -> bool:
    return groups is not None and others is not None and groups.axis == others.axis

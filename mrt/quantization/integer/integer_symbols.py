"""Integer symbols with proven bounds, and arithmetic on them: shifts, multipliers, weighted sums, roundings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256

import numpy as np

from mrt.errors import QuantizationError
from mrt.quantization.integer.directed import DIRECTED_ROOM, DirectedRounding, directed_rounding
from mrt.quantization.integer.requantize import Multiplier
from mrt.quantization.integer.weighted_sum import EXACT_BITS, fit_weighted_sum, power_of_two
from mrt.symbol import Array, Graph, GraphBuilder, Interval, Operator, Symbol, TensorType
from mrt.symbol.bounds import DTYPE_RANGES, bounds_of
from mrt.symbol.builder import part_of
from mrt.symbol.interval import signed_bits
from mrt.symbol.operators.activation import Clip
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul, BroadcastSub
from mrt.symbol.operators.integer import Cast, LeftShift, RightShift
from mrt.symbol.rounding import HALF_EVEN, HALF_ODD
from mrt.symbol.types import INT32_MAX, INT32_MIN, narrowest_dtype

SMALL_BITS = 16
"""Integers of so many bits leave room for all digits of a factor that matter."""
TIE_BITS = 12
"""A shift by more bits hardly meets halves but for those that rounded coefficients make."""
SPLIT_BITS = 20
"""Integers of more bits are split in two before they are multiplied by a real factor, so that few digits of it do."""


class IntegerSymbols:
    """Makes the symbols of the integer graph for one prepared float symbol after the other.

    Bounds of every symbol are at hand while building; one that needs more than 32 bits is refused at once.
    """

    def __init__(self, reserved: Iterable[str]) -> None:
        """reserved: the names of the float graph; see `GraphBuilder`."""
        self._symbols = GraphBuilder(reserved)
        self._bounds: dict[Symbol, Interval] = {}
        self._constants: dict[tuple[str, str, tuple[int, ...], bytes], Symbol] = {}
        self._sums: dict[Symbol, tuple[Symbol, Array]] = {}
        self._origin = ""

    def begin(self, symbol: Symbol) -> None:
        """From here on symbols are made for this prepared float symbol: it is their origin and gives them names."""
        self._origin = symbol.name

    def variable(self, name: str, type: TensorType, lo: int, hi: int) -> Symbol:
        """A graph input of integers in [lo, hi]."""
        symbol = self._symbols.input(name, type)
        self._bounds[symbol] = Interval.of(lo, hi, type.shape)
        return symbol

    def apply(self, operator: Operator, inputs: Sequence[Symbol], suffix: str = "") -> Symbol:
        """`operator` on integer symbols, its bounds proven; named after the float symbol, with `suffix` if given."""
        symbol = self._symbols.apply(operator, inputs, f"{self._origin}{suffix}", self._origin)
        self._bounds[symbol] = bounds_of(symbol, [self._bounds[source] for source in symbol.inputs])
        return symbol

    def constant(self, name: str, values: Array, dtype: str | None = None) -> Symbol:
        """An integer parameter in `dtype`, or the narrowest; the same values under the same name are one parameter."""
        if not values.size:
            raise QuantizationError(f"{self._origin}: the parameter {name} is empty")
        lo, hi = int(values.min()), int(values.max())
        if lo < INT32_MIN or hi > INT32_MAX:
            raise QuantizationError(
                f"{self._origin}: the constant {name} needs {signed_bits(max(hi, ~lo))} bits, 32 are allowed"
            )
        stored = np.ascontiguousarray(values, dtype or narrowest_dtype(lo, hi))
        key = (name, stored.dtype.name, stored.shape, sha256(stored.data).digest())
        if key not in self._constants:
            symbol = self._symbols.parameter(name, stored, self._origin)
            self._constants[key] = symbol
            self._bounds[symbol] = Interval.constant(stored)
        return self._constants[key]

    def bounds(self, symbol: Symbol) -> Interval:
        """The proven interval of a symbol made here."""
        return self._bounds[symbol]

    def graph(self, outputs: Sequence[Symbol]) -> Graph:
        """The integer graph with these outputs."""
        return self._symbols.graph(outputs)

    def part(self, inputs: Collection[Symbol], outputs: Sequence[Symbol]) -> Graph:
        """The part of the graph from `inputs`, as far as they are needed, to `outputs`, to be run on its own."""
        return part_of(inputs, outputs, self._symbols.value)

    def add_constant(self, symbol: Symbol, name: str, values: Array, suffix: str = "") -> Symbol:
        """`symbol` plus integers that broadcast; constants added one after the other become one."""
        base, before = self._sums.get(symbol, (symbol, np.zeros((), np.int64)))
        values = before + values
        total = self.apply(BroadcastAdd(), [base, self.constant(name, values)], suffix)
        self._sums[total] = (base, values)
        return total

    def without_constant(self, symbol: Symbol) -> Symbol:
        """What `add_constant` made `symbol` from; others as they are."""
        base, _ = self._sums.get(symbol, (symbol, None))
        return base

    def narrow(self, symbol: Symbol, lo: int, hi: int) -> Symbol:
        """`symbol` clipped to [lo, hi] where its bounds exceed that, in the narrowest dtype."""
        symbol = self.clip_to(symbol, lo, hi)
        bounds = self.bounds(symbol)
        return self.cast(symbol, narrowest_dtype(int(bounds.min), int(bounds.max)))

    def clip_to(self, symbol: Symbol, lo: int, hi: int) -> Symbol:
        """`symbol` clipped to [lo, hi] where its bounds exceed that; limits that no value reaches are drawn in."""
        bounds = self.bounds(symbol)
        if bounds.min >= lo and bounds.max <= hi:
            return symbol
        least, most = max(lo, min(int(bounds.min), hi)), min(hi, max(int(bounds.max), lo))
        held_lo, held_hi = DTYPE_RANGES[symbol.dtype]
        if least < held_lo or most > held_hi:
            symbol = self.cast(symbol, "int32")
        return self.apply(Clip(a_min=float(least), a_max=float(most)), [symbol], "_clip")

    def cast(self, symbol: Symbol, dtype: str) -> Symbol:
        """`symbol` stored as `dtype`, which must hold its bounds."""
        return symbol if symbol.dtype == dtype else self.apply(Cast(dtype=dtype), [symbol], f"_{dtype}")

    def held(self, symbol: Symbol, factor: Array, lo: int, hi: int) -> Symbol:
        """`symbol` clipped to [lo, hi], beyond which its values do not matter, where that gives room for digits of the
        factor that it is multiplied by."""
        magnitude = self.bounds(symbol).magnitude
        reach = float(np.abs(factor).max()) * magnitude
        has_room = magnitude.bit_length() <= SMALL_BITS and reach < 2 ** (31 - EXACT_BITS)
        if has_room or magnitude < 2 * max(abs(lo), abs(hi)):
            return symbol
        return self.clip_to(symbol, lo, hi)

    def shifted(self, symbol: Symbol, by: int, suffix: str) -> Symbol:
        """`symbol` shifted right, rounding half up."""
        return self._shift(symbol, np.full((1,) * symbol.type.rank, by), suffix)

    def multiplied(self, symbol: Symbol, multiplier: Multiplier) -> Symbol:
        """((symbol >> pre_shift) * frac) >> shift, both shifts rounding half up."""
        symbol = self._shift(symbol, np.asarray(multiplier.pre_shift), "_pre_shift")
        return self._shift(self._times(symbol, multiplier.frac, "frac", "_scaled"), multiplier.shift, "_shifted")

    def weighted_sum(
        self,
        terms: Sequence[tuple[Symbol, Array]],
        constant: Array,
        one_shift: bool = False,
        suffix: str = "_scaled",
        spare: int = 0,
    ) -> tuple[Symbol, Array]:
        """sum_i x_i factor_i + constant in units of 2^-shift, and the shift: see `WeightedSum`.

        terms: integers with their factors, float64; constant: float64; all of one rank, each axis of the factors and of
        the constant 1 or full. one_shift: whether the shift is one number. suffix: of the name of the sum. spare: what
        32 bits have room to be added to the sum behind.
        """
        parts = [part for symbol, factor in terms for part in self._in_few_bits(symbol, factor)]
        magnitudes = [magnitudes_like(self.bounds(symbol), factor) for symbol, factor in parts]
        try:
            found = fit_weighted_sum([factor for _, factor in parts], magnitudes, constant, one_shift, spare)
        except QuantizationError as error:
            raise QuantizationError(f"{self._origin}: {error}; widen its range or lower its bits") from None
        pairs = zip(parts, found.pre_shifts, strict=True)
        symbols = [self._shift(symbol, shift, "_pre_shift") for (symbol, _), shift in pairs]
        total: Symbol | None = None
        for level in reversed(range(len(found.digits))):
            name, kind = ("_scaled_rest", "rest") if level else ("_scaled", "frac")
            digits = zip(symbols, found.digits[level], strict=True)
            summands = [self._times(symbol, d, kind, name) for symbol, d in digits if level == 0 or d.any()]
            if total is not None:
                summands.append(self.shifted(total, found.digit_bits, "_rest"))
            total = self._total(summands, found.constants[level], f"{name}_whole" if level else suffix)
        if total is None:
            raise QuantizationError(f"{self._origin}: a sum of nothing has no value")
        return total, found.shift

    def rounded_once(self, symbol: Symbol, ratio: Array, part: Array, top: int, rounding: str = HALF_EVEN) -> Symbol:
        """round(x ratio + part), for what is saturated at -top and top beside the part.

        Halves go to even, or to odd if that is asked, where the ratio has so few bits that they occur; else up. Other
        roundings take what is within 2^-SAME_BITS of an integer, or of a half, as that, unless the ratio is exact.
        """
        # From here on all integers but 0 saturate.
        ratio = np.minimum(ratio, top + 2.0)
        limit = int(min(np.ceil((top + 1) / ratio.min()) + 1, INT32_MAX))
        is_nearest = rounding in (HALF_EVEN, HALF_ODD)
        terms = [(self.held(symbol, ratio, -limit, limit), ratio)]
        total, shift = self.weighted_sum(terms, part, spare=0 if is_nearest else DIRECTED_ROOM)
        has_ties = 0 < shift.max() <= TIE_BITS
        if not is_nearest:
            total = self._directed(total, directed_rounding(rounding, shift))
        elif has_ties and self.bounds(total).magnitude < INT32_MAX >> 2:
            if shift.min() == 0:
                # Channels of whole numbers beside others: halves of the doubled ones are none.
                total, shift = self._times(total, np.full_like(shift, 2), "double", "_double"), shift + 1
            total = self._ties_moved(total, shift, rounding == HALF_ODD)
        return self._shift(total, shift, "_shifted")

    def sign_of(self, symbol: Symbol) -> Symbol:
        """1 where x is 0 or more, else -1: 2 clip(x, -1, 0) + 1."""
        below = self.clip_to(symbol, -1, 0)
        one, two = (np.full((1,) * symbol.type.rank, n) for n in (1, 2))
        return self.add_constant(self._times(below, two, "two", "_below"), f"{self._origin}_one", one, "_sign")

    def _directed(self, symbol: Symbol, rounding: DirectedRounding) -> Symbol:
        """What a shift that rounds half up makes the rounding of."""
        if rounding.factor.any():
            side = self._times(self.clip_to(symbol, *rounding.side), rounding.factor, "side", "_side")
            symbol = self.apply(BroadcastAdd(), [symbol, side], "_sided")
        if not rounding.base.any():
            return symbol
        return self.add_constant(symbol, f"{self._origin}_base", rounding.base, "_directed")

    def _total(self, summands: Sequence[Symbol], constant: Array, suffix: str) -> Symbol:
        total = summands[0]
        for index, summand in enumerate(summands[1:], start=2):
            ends = index == len(summands) and not constant.any()
            total = self.apply(BroadcastAdd(), [total, summand], suffix if ends else "_summed")
        return self.add_constant(total, f"{self._origin}_offset", constant, suffix) if constant.any() else total

    def _in_few_bits(self, symbol: Symbol, factor: Array) -> list[tuple[Symbol, Array]]:
        """x factor as high (factor 2^n) + low factor, where x = high 2^n + low has more than SPLIT_BITS bits.

        Of more than 29 bits the last ones are rounded off, so that the difference is proven to fit 32. Powers of two
        multiply as they are.
        """
        bits = int(self.bounds(symbol).magnitude).bit_length()
        if bits <= SPLIT_BITS or power_of_two(factor) is not None:
            return [(symbol, factor)]
        spare = max(bits - 29, 0)
        symbol, by = self.shifted(symbol, spare, "_spare"), (bits - spare) // 2
        high = self.shifted(symbol, by, "_high")
        amount = self.constant(f"{self._origin}_high_by", np.full((1,) * symbol.type.rank, by))
        low = self.apply(BroadcastSub(), [symbol, self.apply(LeftShift(), [high, amount], "_high_part")], "_low")
        # What rounding to the nearest leaves: the difference alone would be bounded as if both were independent.
        low = self.clip_to(low, -(1 << (by - 1)), (1 << (by - 1)) - 1)
        return [(high, np.ldexp(factor, by + spare)), (low, np.ldexp(factor, spare))]

    def _ties_moved(self, symbol: Symbol, shift: Array, ties_to_odd: bool) -> Symbol:
        """x less 1 where x / 2^shift may be a half that is to go down; others are rounded to what they were.

        With f = floor(x / 2^shift), that is where f is even, or odd: 1 - (f - 2 floor(f / 2)), or the difference.
        """
        half = self.constant(f"{self._origin}_half", -(np.int64(1) << (shift - 1)))
        whole = self.constant(f"{self._origin}_one", -(np.int64(1) << shift))
        floors = self._shift(self.apply(BroadcastAdd(), [symbol, half], "_down"), shift, "_floor")
        pairs = self._shift(self.apply(BroadcastAdd(), [symbol, whole], "_down"), shift + 1, "_floor_of_half")
        two = self.constant(f"{self._origin}_two", np.full_like(shift, 2))
        parity = self.apply(BroadcastSub(), [floors, self.apply(BroadcastMul(), [pairs, two], "_even")], "_parity")
        # Which the bounds do not see: they count both as independent.
        parity = self.clip_to(parity, 0, 1)
        if ties_to_odd:
            return self.apply(BroadcastSub(), [symbol, parity], "_tied")
        return self.add_constant(
            self.apply(BroadcastAdd(), [symbol, parity], "_odd"),
            f"{self._origin}_tie",
            np.full_like(shift, -1),
            "_tied",
        )

    def _times(self, symbol: Symbol, factors: Array, name: str, suffix: str) -> Symbol:
        if (factors == 1).all():
            return symbol
        return self.apply(BroadcastMul(), [symbol, self.constant(f"{self._origin}_{name}", factors)], suffix)

    def _shift(self, symbol: Symbol, shift: Array, suffix: str) -> Symbol:
        if not shift.any():
            return symbol
        amount = self.constant(f"{self._origin}{suffix}_by", shift)
        return self.apply(RightShift(), [symbol, amount], suffix)


def magnitudes_like(bounds: Interval, ratio: Array) -> Array:
    """The largest magnitudes of `bounds`, one for each element of `ratio` (same rank, each axis 1 or full)."""
    keep = [axis for axis in range(ratio.ndim) if ratio.shape[axis] > 1]
    reduced = bounds.reduced(keep)
    return np.broadcast_to(np.maximum(np.abs(reduced.lo), np.abs(reduced.hi)), ratio.shape)

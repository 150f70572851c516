"""C that turns real values into a network's integers and back, for who has floats: in no other place of a program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mrt.export.c_text import C_TYPES
from mrt.symbol.quantized_tensor import TensorQuantization
from mrt.symbol.rounding import HALF_EVEN

# As `mrt.symbol.rounding.ROUNDINGS` has them; v is a float32 that is no NaN and at most 2^62 away from zero.
_ROUNDED = {
    HALF_EVEN: "nearest(v)",
    "half_odd": "nearest(v - 1.0f) + 1",
    "floor": "lower(v)",
    "ceil": "-lower(-v)",
    "toward_zero": "(int64_t)v",
    "away_from_zero": "v < 0.0f ? lower(v) : -lower(-v)",
    "half_away_from_zero": "v < 0.0f ? -lower(0.5f - v) : lower(v + 0.5f)",
    "half_toward_zero": "v < 0.0f ? lower(v + 0.5f) : -lower(0.5f - v)",
    "sign": "v >= 0.0f ? 1 : -1",
}
"""round(v) in int64, by the names of roundings."""

_HELPERS = """\
/* The nearest whole number, of two the even one; the greatest that is not above. */
static inline int64_t {name}_nearest(float v) {{
  const int64_t whole = (int64_t)v;
  const float rest = v - (float)whole;
  const int odd = (int)(whole & 1);
  return whole + (rest > 0.5f || (rest == 0.5f && odd)) - (rest < -0.5f || (rest == -0.5f && odd));
}}
static inline int64_t {name}_lower(float v) {{
  const int64_t whole = (int64_t)v;
  return whole - (v < (float)whole);
}}"""
_FAR = "4611686018427387904.0f"
"""2^62, beyond which no integer of 32 bits is far."""


def conversions(
    name: str, inputs: Sequence[tuple[str, TensorQuantization]], outputs: Sequence[tuple[str, TensorQuantization]]
) -> Iterator[str]:
    """The lines of functions NAME_quantize_PLACE and NAME_dequantize_PLACE, behind #ifdef NAME_FLOATS.

    They do what `TensorQuantization.quantize` and `dequantize` do, bit for bit, without a library. Inputs that are
    given as integers have none.
    """
    quantized = [(place, entry) for place, entry in inputs if not entry.is_given]
    if not quantized and not outputs:
        return
    yield f"#ifdef {name.upper()}_FLOATS"
    yield "/* A tensor from real values to integers and back. Quantizing gives 0, or 1 where a value is NaN. */"
    if quantized:
        yield from _HELPERS.format(name=name).splitlines()
    for place, entry in quantized:
        yield from _quantize(name, place, entry)
    for place, entry in outputs:
        yield from _dequantize(name, place, entry)
    yield "#endif"
    yield ""


def _quantize(name: str, place: str, entry: TensorQuantization) -> Iterator[str]:
    kind, zero = C_TYPES[entry.dtype], entry.zero_point
    scale = _Scale(entry, np.float32)
    rounded = _ROUNDED[entry.rounding].replace("nearest(", f"{name}_nearest(").replace("lower(", f"{name}_lower(")
    first = f" + {float(np.float32(zero))!r}f" if entry.zero_point_first else ""
    behind = "" if entry.zero_point_first or zero == 0 else f" + INT64_C({zero})"
    yield f"static inline int {name}_quantize_{place}(const float *values, {kind} *integers) {{"
    yield from scale.table("float")
    yield f"  for (int32_t i = 0; i < {_size(entry)}; ++i) {{"
    yield f"    float v = values[i] / {scale.at}{first};"
    yield "    if (v != v) { return 1; }"
    yield f"    v = v > {_FAR} ? {_FAR} : v < -{_FAR} ? -{_FAR} : v;"
    yield f"    int64_t q = ({rounded}){behind};"
    yield f"    q = q < INT64_C({entry.lo}) ? INT64_C({entry.lo}) : q > INT64_C({entry.hi}) ? INT64_C({entry.hi}) : q;"
    yield f"    integers[i] = ({kind})q;"
    yield "  }"
    yield "  return 0;"
    yield "}"


def _dequantize(name: str, place: str, entry: TensorQuantization) -> Iterator[str]:
    scale = _Scale(entry, np.float64)
    moved = "(double)integers[i]" if entry.zero_point == 0 else f"((double)integers[i] - {float(entry.zero_point)!r})"
    yield f"static inline void {name}_dequantize_{place}(const {C_TYPES[entry.dtype]} *integers, float *values) {{"
    yield from scale.table("double")
    yield f"  for (int32_t i = 0; i < {_size(entry)}; ++i) {{"
    yield f"    values[i] = (float)({scale.at} * {moved});"
    yield "  }"
    yield "}"


class _Scale:
    """A tensor's scale in C. at: what it is for element i. `table` declares what that reads."""

    def __init__(self, entry: TensorQuantization, dtype: type[np.floating]) -> None:
        numbers = entry.scale.astype(dtype)
        suffix = "f" if dtype is np.float32 else ""
        self._texts = [f"{np.format_float_scientific(number, trim='0')}{suffix}" for number in numbers.reshape(-1)]
        self.at = self._texts[0] if len(self._texts) == 1 else f"scales[{_place(entry)}]"

    def table(self, kind: str) -> Iterator[str]:
        if len(self._texts) > 1:
            yield f"  static const {kind} scales[{len(self._texts)}] = {{{', '.join(self._texts)}}};"


def _place(entry: TensorQuantization) -> str:
    """The place among the scales of element i, which lie along the axes that broadcast to the tensor's last ones."""
    inner, stride, terms = 1, 1, []
    lengths = entry.shape[len(entry.shape) - entry.scale.ndim :]
    for length, count in zip(reversed(lengths), reversed(entry.scale.shape), strict=True):
        if count > 1:
            terms.append(f"i / {inner} % {count} * {stride}")
            stride *= count
        inner *= length
    return " + ".join(reversed(terms))


def _size(entry: TensorQuantization) -> int:
    return int(np.prod(entry.shape, dtype=np.int64))

"""What files of C tell of a network: names, types, and how integers stand for real values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

import numpy as np

from mrt.errors import ConfigError
from mrt.messages import short
from mrt.symbol.quantized_tensor import TensorQuantization
from mrt.symbol.rounding import HALF_EVEN
from mrt.symbol.types import INT32_MIN

C_TYPES = {"bool": "bool", "int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "int32": "int32_t"}
"""The C type of a tensor's elements, by dtype."""


def number(value: int) -> str:
    """A number of at most 32 bits as a C constant; 2^31 itself, without its sign, would be of a type wider than int."""
    return f"({INT32_MIN + 1} - 1)" if value == INT32_MIN else str(value)


def check_name(name: object) -> None:
    """ConfigError unless names of C can begin with it."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise ConfigError(f"{short(name)} cannot begin names of C; a letter, then letters, digits and _ are needed")


def described(place: str, entry: TensorQuantization) -> Iterator[str]:
    """The comment on an input or output; its scale is given as a fraction too, for arithmetic without floats."""
    shape = ", ".join(map(str, entry.shape))
    yield f"{place}: {comment(entry.name)}, {entry.dtype}[{shape}], row by row, {entry.lo} to {entry.hi}"
    yield f"    zero point {entry.zero_point}"
    if entry.rounding != HALF_EVEN:
        yield f"    real values are rounded {entry.rounding}"
    if entry.zero_point_first:
        yield "    real values are divided by the scale, the zero point is added, and then they are rounded"
    for at in np.ndindex(entry.scale.shape):
        scale = float(entry.scale[at])
        numerator, denominator = scale.as_integer_ratio()
        ratio = f"{numerator}" if denominator == 1 else f"{numerator} / 2^{denominator.bit_length() - 1}"
        index = f"[{', '.join(map(str, at))}]" if at else ""
        yield f"    scale{index} {scale!r} = {ratio}"


def includes(dtypes: Collection[str]) -> list[str]:
    return ["#include <stdint.h>", *(["#include <stdbool.h>"] if "bool" in dtypes else [])]


def comment(name: str) -> str:
    """A name as it may stand in a comment: nothing that ends it or means something to the preprocessor."""
    return re.sub(r"[^\w.:/\[\]-]", "_", name, flags=re.ASCII)


def text_of(lines: Iterable[str]) -> str:
    return "\n".join(line.rstrip() for line in lines) + "\n"

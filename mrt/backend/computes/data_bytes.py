"""The two bytes of data of 16 bits."""

from __future__ import annotations

from mrt.backend.memory.storage import View
from mrt.backend.operators.data_bytes import BYTE, BYTE_BITS, HighByte, JoinBytes, LowByte
from mrt.backend.te.registry import Kind, compute
from mrt.backend.te.stages import elementwise
from mrt.backend.tir.expressions import Tensor, constant
from mrt.symbol import Symbol

WORD = "int16"


@compute(LowByte, kind=Kind.ELEMENTWISE)
def low_byte(symbol: Symbol, data: Tensor) -> View:
    return elementwise(
        symbol, data, body=lambda x: (x.astype(WORD) & constant(BYTE - 1, WORD)).astype("uint8"), non_negative=True
    )


@compute(HighByte, kind=Kind.ELEMENTWISE)
def high_byte(symbol: Symbol, data: Tensor) -> View:
    return elementwise(symbol, data, body=lambda x: (x.astype(WORD) >> constant(BYTE_BITS, WORD)).astype("int8"))


@compute(JoinBytes, kind=Kind.ELEMENTWISE)
def join_bytes(symbol: Symbol, low: Tensor, high: Tensor) -> View:
    return elementwise(symbol, low, high, body=lambda x, y: x.astype(WORD) + y.astype(WORD) * constant(BYTE, WORD))

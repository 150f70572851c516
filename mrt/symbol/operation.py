"""The operations of arithmetic that operators of different operands share."""

from __future__ import annotations

import enum


class Operation(enum.Enum):
    """What an elementwise operator computes of two operands. The value is NumPy's name of it."""

    ADD = "add"
    SUBTRACT = "subtract"
    MULTIPLY = "multiply"
    DIVIDE = "divide"
    MAXIMUM = "maximum"
    MINIMUM = "minimum"

"""Where TFLite's integers round otherwise than to the nearest, halves to even, the real numbers are moved to do so."""

from __future__ import annotations

from mrt.frontend.tflite.node import Node
from mrt.symbol import Symbol
from mrt.symbol.operators.activation import Clip
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.scalar import MulScalar, PlusScalar


def away_from_halves(node: Node, averages: Symbol, count: int, suffix: str) -> Symbol:
    """Averages of up to `count` of the result's own integers, moved so that halves round away from the integer 0.

    Of an average v, in steps of the scale, y = v + clip(v, -1 / count, 1 / count) / 4. Averages are multiples of 1 / n,
    n <= count: one that is not 0 is at least 1 / count, and one that is no half is at least 1 / (2 n) from the next.
    """
    result = node.outputs[0]
    scale, zero = result.scales[0], (result.zero_points or (0,))[0]
    counted = node.apply(PlusScalar(scale * zero), [averages], "from_integer_0") if zero else averages
    limit = scale / count
    sign = node.apply(Clip(a_min=-limit, a_max=limit), [counted], "side")
    return node.apply(ElemwiseAdd(), [averages, node.apply(MulScalar(0.25), [sign], "quarter")], suffix)

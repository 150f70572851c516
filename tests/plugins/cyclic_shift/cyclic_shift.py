"""CyclicShift for MRT: it turns an axis like a wheel, as Swin Transformers do with their windows."""

import numpy as np

from mrt.symbol import Array, Interval, Operator, Symbol, TensorType, operator
from mrt.symbol.types import normalize_axis


@operator("acme_cyclic_shift")
class CyclicShift(Operator):
    """Y[i] = X[(i - shift) mod n] along an axis of length n: np.roll."""

    axis: int
    shift: int

    keeps_scale = True

    def infer(self, x: TensorType) -> TensorType:
        normalize_axis(self.axis, x.rank)
        return x

    def evaluate(self, x: Array) -> Array:
        return np.roll(x, self.shift, self.axis)

    def bounds(self, x: Interval) -> Interval:
        """Bounds that differ along the axis, and so have its length, turn with it."""
        return Interval(self.evaluate(x.lo), self.evaluate(x.hi), x.shape)

    def kept_axis(self, axis: int, index: int, *inputs: TensorType) -> int | None:
        return None if axis == normalize_axis(self.axis, inputs[0].rank) else axis

    def batch_obstacle(self, x: TensorType) -> str:
        return "axis 0 is turned" if normalize_axis(self.axis, x.rank) == 0 else ""


def convert_onnx() -> None:
    from mrt.frontend.onnx.node import Node, converter

    @converter("acme.CyclicShift")
    def convert(node: Node) -> Symbol:
        operator = CyclicShift(axis=node.integer("axis", 1), shift=node.integer("shift", 1))
        return node.apply(operator, [node.symbol(0)])


def expand() -> None:
    from mrt.quantization.expansion import Demand, Inputs, expansion
    from mrt.quantization.integer.builder import IntegerBuilder
    from mrt.quantization.integer.quantized import Quantized
    from mrt.quantization.tensor_plan import Plan

    @expansion(CyclicShift, demands=Demand.NARROW)
    def expand(op: Symbol[CyclicShift], inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
        """Yq[i] = Xq[(i - shift) mod n] at the scale and zero point of X."""
        data = inputs.quantized(0)
        return builder.quantized(builder.apply(op.operator, [data.symbol]), data.step, data.zero_point)


def compute() -> None:
    from mrt.backend.memory.storage import View
    from mrt.backend.te.registry import compute
    from mrt.backend.te.stages import inlined
    from mrt.backend.tir.expressions import Expression, remainder

    @compute(CyclicShift)
    def compute_shift(symbol: Symbol[CyclicShift], data: View) -> View:
        axis = symbol.operator.axis % symbol.type.rank
        length = symbol.shape[axis]
        back = -symbol.operator.shift % length

        def element(*at: Expression) -> Expression:
            return data(*at[:axis], remainder(at[axis] + back, length), *at[axis + 1 :])

        return inlined(symbol.shape, symbol.dtype, element)


def export_onnx() -> None:
    from mrt.export.onnx.node import Node, Value, exporter, lengths

    @exporter(CyclicShift)
    def export(op: CyclicShift, node: Node) -> Value:
        axis = op.axis % len(node.shape)
        places = np.roll(np.arange(node.shape[axis]), op.shift)
        return node.emit("Gather", [node.input(0), lengths(places)], axis=axis)

"""batch_dot, and dot, which is one: products of two activations."""

from __future__ import annotations

from expansions.multiplication import product_of
from mrt.quantization.expansion import Inputs, expansion
from mrt.quantization.integer.builder import IntegerBuilder
from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.quantizer import symmetric_target
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Symbol
from mrt.symbol.operators.linear import BatchDot


@expansion(BatchDot, why_one_scale="adds up products of two tensors")
def expand_matrix_product(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """Z = X Y for any pair of symmetric and affine quantizers.

    Z / (sx sy) = (Xq - zx) (Yq - zy)

    with the zero points subtracted first, which is exact. Multiplied out it is formalization 4 of FullyConnected in
    "MRT Generalized Quantization Math Formalization", Xq Yq - zy sum(Xq) - zx sum(Yq) + K zx zy, whose sums would be
    activations here and whose terms need more bits than their total. A constant operand is a weight with one scale.
    Where the sums would leave 32 bits, operands lose bits: see `product_of`.
    """
    return product_of(op, [builder.centred(_operand(op, inputs, index, plan, builder)) for index in (0, 1)], builder)


def _operand(op: Symbol, inputs: Inputs, index: int, plan: Plan, builder: IntegerBuilder) -> Quantized:
    value = inputs.values[index]
    if isinstance(value, Quantized):
        return value
    source = op.inputs[index]
    name, grid = source.name, plan[source].constant
    if grid is not None and grid.scale.size == 1:
        integers = builder.constant(name, grid.integers - grid.zero_point)
        return builder.quantized(integers, float(grid.scale.item()))
    if grid is not None:
        builder.notes.append(f"{op.name} ({op.op}): {name} came quantized with several scales; it is quantized anew")
    bits = plan.config.weight_of(op.name).bits
    return builder.constant_at(name, value, symmetric_target(plan[source].magnitude, bits, signed=True))

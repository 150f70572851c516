"""Deconvolution: a sum of products of an activation and a weight whose number varies with the position."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from expansions.reduction import Form, expand_reduction, reduction_demands
from mrt.quantization.expansion import Inputs, expansion
from mrt.quantization.integer.builder import IntegerBuilder
from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.deconvolution import Deconvolution


@expansion(Deconvolution, demands=reduction_demands)
def expand_deconvolution(op: Symbol[Deconvolution], inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """Y = deconv(X, W) for any pair of symmetric and affine quantizers.

    Y / (sx sw[o]) = deconv(Xq, Wq) - zw[o] deconv(Xq, 1) - zx deconv(1, Wq) + zx zw[o] deconv(1, 1)

    Terms whose zero point is 0 are not built: the identity of expansion formalizations 1 to 4 of "MRT Generalized
    Quantization Math Formalization", Convolution, for an operator that is as linear. How many taps reach a position
    varies with its phase and near the border, so the last two terms are deconvolutions of an image of ones, folded
    into one constant per position; deconv(Xq, 1) has one channel per group. Output channels are counted along axis 1
    of the weight within each group.
    """
    operator = op.operator
    form = DeconvolutionForm(operator, 1, operator.num_group, operator.kernel, op.inputs[0].shape[2:])
    return expand_reduction(op, inputs, plan, builder, form)


@dataclass(frozen=True, eq=False)
class DeconvolutionForm(Form):
    """Weights are (I, O, *kernel) within each group; spatial: of the data."""

    spatial: tuple[int, ...] = ()

    def totals(self, rows: Array, groups: int, rank: int) -> Array:
        """deconv(1, W), cut to length 1 along every axis where it does not vary."""
        operator = self.operator.part(len(rows), groups)
        image = np.ones((1, groups * rows.shape[1], *self.spatial), np.int64)
        result: Array = np.asarray(operator.evaluate(image, operator.from_rows(rows)))
        for axis in range(2, result.ndim):
            first = result.take([0], axis)
            result = first if (result == first).all() else result
        return result

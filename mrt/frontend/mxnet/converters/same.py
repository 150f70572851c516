"""Operators that the graph has as MXNet has them, by all their names."""

from __future__ import annotations

from mrt.frontend.mxnet.node import Node, converter
from mrt.symbol import Symbol

_SAME = """
    relu sigmoid tanh exp log sqrt rsqrt square abs negative floor ceil trunc fix round rint sign reciprocal erf
    cos sin tan arccos arcsin arctan cosh sinh arccosh arcsinh arctanh softsign hard_sigmoid mish clip
    elemwise_add _add _plus _Plus elemwise_sub _sub _minus _Minus elemwise_mul _mul _Mul add_n ElementWiseSum
    broadcast_add broadcast_plus broadcast_sub broadcast_minus broadcast_mul broadcast_div
    _maximum _Maximum _minimum _Minimum broadcast_maximum broadcast_minimum
    _plus_scalar _PlusScalar _minus_scalar _MinusScalar _rminus_scalar _RMinusScalar _mul_scalar _MulScalar
    _div_scalar _DivScalar _rdiv_scalar _RDivScalar _power_scalar _PowerScalar _mod_scalar _ModScalar
    _maximum_scalar _MaximumScalar _minimum_scalar _MinimumScalar
    FullyConnected batch_dot dot Deconvolution Embedding take where
    LayerNorm InstanceNorm L2Normalization Dropout _copy identity BlockGrad stop_gradient
    sum sum_axis mean max max_axis min min_axis argmax argmin
    Concat concat Flatten flatten transpose expand_dims slice crop slice_axis slice_like SwapAxis swapaxes tile repeat
    Pad pad depth_to_space space_to_depth
"""


@converter(*_SAME.split())
def same(node: Node) -> Symbol:
    return node.apply(node.record(), node.symbols())

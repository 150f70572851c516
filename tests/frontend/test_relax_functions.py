"""Elementwise Relax functions of one argument give what TVM computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from relax_modules import build, constant, run
from tvm.relax import op

from mrt.errors import UnsupportedOperatorError
from mrt.frontend.relax import from_relax

ANYWHERE = np.linspace(-5, 5, 60, dtype=np.float32).reshape(3, 20)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (op.abs, ["abs"]),
        (op.cos, ["cos"]),
        (op.sin, ["sin"]),
        (lambda x: op.tan(op.tanh(x)), ["tanh", "tan"]),
        (lambda x: op.asin(op.tanh(x)), ["tanh", "arcsin"]),
        (lambda x: op.acos(op.multiply(op.sin(x), constant(0.5))), ["sin", "_mul_scalar", "arccos"]),
        (op.atan, ["arctan"]),
        (op.asinh, ["arcsinh"]),
        (lambda x: op.acosh(op.exp(op.abs(x))), ["abs", "exp", "arccosh"]),
        (lambda x: op.atanh(op.multiply(op.sin(x), constant(0.5))), ["sin", "_mul_scalar", "arctanh"]),
        (op.sinh, ["sinh"]),
        (op.cosh, ["cosh"]),
        (op.erf, ["erf"]),
        (op.exp, ["exp"]),
        (lambda x: op.log(op.abs(x)), ["abs", "log"]),
        (lambda x: op.sqrt(op.abs(x)), ["abs", "sqrt"]),
        (lambda x: op.rsqrt(op.abs(x)), ["abs", "rsqrt"]),
        (op.ceil, ["ceil"]),
        (op.floor, ["floor"]),
        (op.trunc, ["trunc"]),
        (op.sign, ["sign"]),
        (lambda x: op.round(op.multiply(op.floor(x), constant(0.5))), ["floor", "_mul_scalar", "round_half_even"]),
        (op.nn.gelu, ["LeakyReLU"]),
        (op.nn.gelu_tanh, ["LeakyReLU"]),
        (op.nn.selu, ["LeakyReLU"]),
        (op.nn.silu, ["silu"]),
        (op.square, ["square"]),
        (lambda x: op.power(x, constant(2.0)), ["square"]),
        (lambda x: op.power(x, constant(3.0)), ["_power_scalar"]),
        (lambda x: op.power(op.abs(x), constant([0.5])), ["abs", "sqrt"]),
        (lambda x: op.power(op.exp(x), constant(-1.0)), ["exp", "reciprocal"]),
        (lambda x: op.power(op.exp(x), constant([[-0.5]])), ["exp", "rsqrt"]),
        (lambda x: op.power(op.exp(x), constant(-1.5)), ["exp", "_power_scalar"]),
        (lambda x: op.nn.relu(op.power(x, constant(1.0))), ["relu"]),
        (lambda x: op.power(constant(2.0), x), ["_mul_scalar", "exp"]),
        (lambda x: op.power(constant([[2.0], [3.0], [0.5]]), x), ["broadcast_mul", "exp"]),
        (op.nn.softplus, ["softrelu"]),
        (lambda x: op.nn.softplus(x, beta=2.0), ["_mul_scalar", "softrelu", "_div_scalar"]),
    ],
)
def test_functions(body: Callable[[Any], Any], expected: list[str]) -> None:
    mod = build(body, x=ANYWHERE.shape)
    graph = from_relax(mod)
    assert [symbol.op for symbol in graph.operators] == expected
    np.testing.assert_allclose(graph.evaluate({"x": ANYWHERE})[0], run(mod, {"x": ANYWHERE})[0], rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (lambda x: op.power(x, x), "exponent is computed from the data"),
        (lambda x: op.power(constant(-2.0), x), r"input base is \[-2.0\]; a computed one, or positive finite numbers"),
    ],
)
def test_powers_that_are_not_covered_are_refused(body: Callable[[Any], Any], found: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match=found):
        from_relax(build(body, x=(3, 2)))


def test_functions_without_an_operator_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"relax\.unique\b"):
        from_relax(build(lambda x: op.unique(x), x=(3, 2)))

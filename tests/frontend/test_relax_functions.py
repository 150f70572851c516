"""Elementwise Relax functions of one argument give what TVM computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from relax_modules import build, run
from tvm.relax import op

from mrt.frontend.relax import from_relax

ANYWHERE = np.linspace(-5, 5, 60, dtype=np.float32).reshape(3, 20)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (op.abs, ["abs"]),
        (op.erf, ["erf"]),
        (op.exp, ["exp"]),
        (lambda x: op.log(op.abs(x)), ["abs", "log"]),
        (lambda x: op.sqrt(op.abs(x)), ["abs", "sqrt"]),
        (lambda x: op.rsqrt(op.abs(x)), ["abs", "rsqrt"]),
        (op.nn.gelu, ["LeakyReLU"]),
        (op.nn.gelu_tanh, ["LeakyReLU"]),
        (op.nn.selu, ["LeakyReLU"]),
        (op.nn.softplus, ["softrelu"]),
        (lambda x: op.nn.softplus(x, beta=2.0), ["_mul_scalar", "softrelu", "_div_scalar"]),
    ],
)
def test_functions(body: Callable[[Any], Any], expected: list[str]) -> None:
    mod = build(body, x=ANYWHERE.shape)
    graph = from_relax(mod)
    assert [symbol.op for symbol in graph.operators] == expected
    np.testing.assert_allclose(graph.evaluate({"x": ANYWHERE})[0], run(mod, {"x": ANYWHERE})[0], rtol=2e-5, atol=2e-6)

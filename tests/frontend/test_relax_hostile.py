"""Relax modules that ask for much or fit nothing: one MRTError, at once, in little memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from hostile import bounded
from relax_modules import build, constant
from tvm import relax
from tvm.relax import op

from mrt.errors import MRTError
from mrt.frontend.relax import from_relax

HUGE = 2**40


@pytest.mark.parametrize(
    "body",
    [
        lambda x: op.add(x, op.sum(op.zeros((HUGE, 2), "float32"))),
        lambda x: op.add(x, op.sum(op.ones((2**20, 2**20), "float32"))),
        lambda x: op.add(x, op.sum(op.full((2**20, 2**20), constant(1.0)))),
        lambda x: op.broadcast_to(x, (HUGE, 2, 3)),
        lambda x: op.add(x, op.sum(op.broadcast_to(constant([1.0]), (2**30, 2**10)))),
        lambda x: op.tile(x, (1, HUGE)),
        lambda x: op.repeat(x, HUGE, 1),
        lambda x: op.add(constant(np.ones((2**20, 1))), constant(np.ones((1, 2**20)))),
        lambda x: op.nn.pad(x, [0, 0, 0, HUGE]),
        lambda x: op.image.resize2d(op.reshape(x, (1, 1, 2, 3)), (2**20, 2**20)),
        lambda x: op.nn.adaptive_avg_pool2d(op.reshape(x, (1, 1, 2, 3)), (2**20, 2**20)),
        lambda x: op.nn.max_pool2d(op.reshape(x, (1, 1, 2, 3)), (1, 1), dilation=(2**30, 2), padding=2**29),
    ],
)
def test_modules_that_ask_for_much(body: Any) -> None:
    mod = build(body, x=(2, 3))
    with bounded(300), pytest.raises(MRTError) as caught:
        from_relax(mod)
    assert "\n" not in str(caught.value)


def test_inputs_that_no_tensor_is() -> None:
    with bounded(), pytest.raises(MRTError, match=r"input x: a tensor of shape \(1099511627776, 1099511627776\)"):
        from_relax(build(op.nn.relu, x=(HUGE, HUGE)))


def test_a_chain_of_thousands() -> None:
    """What a module holds is walked, not recursed into."""

    def body(x: Any) -> Any:
        builder = relax.BlockBuilder.current()
        for _ in range(3_000):
            x = builder.emit(op.nn.relu(x))
        return x

    assert len(from_relax(build(body, x=(2,))).operators) == 3_000


def test_modules_that_hold_no_network() -> None:
    with pytest.raises(MRTError):
        from_relax(tvm.IRModule())
    with pytest.raises(MRTError):
        from_relax(build(_packed, x=(2,)))


def _packed(x: Any) -> Any:
    return op.call_pure_packed("made.up", x, ty_args=relax.TensorType((2,), "float32"))

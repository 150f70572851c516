"""The upper word of products of words, in vectors of any number of lanes."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import s_tir, te, tirx

from mrt.backend.kernels.generic.high_word import high_word
from mrt.backend.machine import Machine

COUNT = 96
ENDS = np.array([0, 1, 2**16 - 1, 2**16, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1], np.uint32)


@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 8, 16, 32])
def test_it_is_that_of_the_exact_product(lanes: int) -> None:
    """Of the ends of words, each with each, and of others; both factors vary, or one is made before the loop."""
    random = np.random.default_rng(lanes)
    drawn = random.integers(0, 2**32, (2, COUNT - ENDS.size**2), dtype=np.uint32)
    a, b = (np.concatenate([ends.ravel(), rest]) for ends, rest in zip(np.meshgrid(ENDS, ENDS), drawn, strict=True))
    x, y = (te.placeholder((COUNT,), "uint32", name) for name in "xy")
    each = te.compute((COUNT,), lambda i: high_word(x[i], y[i]), name="each")
    shared = te.compute((COUNT,), lambda i: high_word(x[i], y[COUNT - 1]), name="shared")
    plan = s_tir.Schedule(te.create_prim_func([x, y, each, shared]))
    for block in ("each", "shared"):
        (loop,) = plan.get_loops(plan.get_sblock(block))
        plan.vectorize(plan.split(loop, [None, lanes])[1])
    found = [tvm.runtime.tensor(np.zeros(COUNT, np.uint32)) for _ in range(2)]
    tirx.build(plan.mod, Machine.of().target)["main"](*map(tvm.runtime.tensor, (a, b)), *found)
    for got, other in zip(found, (b, b[-1:]), strict=True):
        np.testing.assert_array_equal(got.numpy(), (a.astype(np.uint64) * other >> np.uint64(32)).astype(np.uint32))

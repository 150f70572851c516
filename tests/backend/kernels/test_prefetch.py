"""What steps of a reduction fetch of the weights to come."""

from __future__ import annotations

import pytest
from tvm import tirx

from mrt.backend.kernels.generic.prefetch import _of_next_blocks


@pytest.mark.parametrize(("tiles", "turns"), [(1, 1), (2, 2), (8, 8), (12, 8), (169, 32)])
def test_a_line_of_the_next_weights_is_fetched_by_one_step_of_those_that_share_it(tiles: int, turns: int) -> None:
    """Two blocks of 256 steps with 16 weights of two bytes each, while so many tiles are summed."""
    weights, step = tirx.decl_buffer((8, 256, 8, 2), "int16", "weights"), tirx.Var("step", "int32")
    (fetched,) = _of_next_blocks(weights, tirx.const(0, "int32"), 2, step, tiles, step)
    if turns == 1:
        assert isinstance(fetched, tirx.Evaluate)
        return
    assert isinstance(fetched, tirx.IfThenElse)
    assert str(fetched.condition) == f"step % {turns} == 0"

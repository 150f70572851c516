"""What steps of a reduction fetch of the weights to come."""

from __future__ import annotations

import pytest
from tvm import sym, tirx

from mrt.backend.kernels.generic.prefetch import MOST_AT_ONCE, _of_next_blocks, _spread
from mrt.backend.tir.expressions import constant, substitute


@pytest.mark.parametrize(("tiles", "turns"), [(1, 1), (2, 2), (8, 8), (12, 8), (169, 32)])
def test_a_line_of_the_next_weights_is_fetched_by_one_step_of_those_that_share_it(tiles: int, turns: int) -> None:
    """Two blocks of 256 steps with 16 weights of two bytes each, while so many tiles are summed."""
    weights, step = tirx.decl_buffer((8, 256, 8, 2), "int16", "weights"), tirx.Var("step", "int32")
    (fetched,) = _of_next_blocks(weights, tirx.const(0, "int32"), 2, step, tiles * 256, step)
    if turns == 1:
        assert isinstance(fetched, tirx.Evaluate)
        return
    assert isinstance(fetched, tirx.IfThenElse)
    assert str(fetched.condition) == f"step % {turns} == 0"


@pytest.mark.parametrize(("tiles", "lines"), [(8, 0), (12, 43), (32, 16), (49, 11), (512, 1), (1024, 1)])
def test_a_tile_fetches_all_of_its_share_at_once_or_nothing(tiles: int, lines: int) -> None:
    """Of two blocks of 512 steps with 16 weights of two bytes each, 512 lines; half a line for two of 1024 tiles."""
    weights, done = tirx.decl_buffer((8, 512, 8, 2), "int16", "weights"), tirx.Var("done", "int32")
    fetched = list(_of_next_blocks(weights, tirx.const(0, "int32"), 2, done, tiles, done, MOST_AT_ONCE))
    assert len(fetched) == lines
    assert all(isinstance(each, tirx.IfThenElse) == (tiles > 512) for each in fetched)


@pytest.mark.parametrize(("steps", "count"), [(480, 6), (288, 6), (64, 64), (7, 3), (3, 8), (4096, 13), (5, 1)])
def test_what_is_written_to_is_fetched_evenly_without_a_division(steps: int, count: int) -> None:
    """LLVM computes a remainder where a quotient is multiplied again by what divided it, and its registers run out."""
    step = tirx.Var("step", "int32")
    place = _spread(step, steps, count)
    assert "/" not in str(place)
    assert "%" not in str(place)
    places = [substitute([place], [step], [constant(at, "int32")])[0] for at in range(steps)]
    found = [int(sym.Analyzer().simplify(each)) for each in places]
    assert found == sorted(found)
    assert set(found) <= set(range(count))
    assert len(set(found)) == min(steps, count)

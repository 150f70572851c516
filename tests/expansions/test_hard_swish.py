"""Hard swish as a product of the data and a ramp: within the stated error, within 32 bits, and where it is a table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expansions.hard_swish import COARSEST
from mrt.quantization.expand import expand_graph
from mrt.quantization.integer.integer_graph import IntegerGraph
from mrt.symbol import Operator
from mrt.symbol.operators.functions import HardSwish
from mrt.symbol.operators.region import ElementwiseRegion
from tests.compiled_integers import assert_compiled_alike
from tests.expansions.one_function import configured, ranges, run, steepest
from tests.quantization.networks import chain

LINES: dict[str, tuple[Operator, float]] = {
    "hard swish": (HardSwish(), 1.0),
    "times a number": (ElementwiseRegion("_mul_scalar(hard_swish(x), scalar=0.4)"), 0.4),
    "a line": (ElementwiseRegion("_plus_scalar(_mul_scalar(hard_swish(x), scalar=2.5), scalar=-0.25)"), 2.5),
    "a line from the right": (
        ElementwiseRegion("_minus_scalar(_div_scalar(hard_swish(x), scalar=8), scalar=0.01)"),
        0.125,
    ),
}
"""Functions, and the slope of each as a line of hard swish."""
ENDS = [(-3.0, 4.5), (-8.0, 1.0), (-0.5, 0.25), (-2.0, -1.0), (-3.5, 60.0), (0.0, 7.0), (-60.0, 0.5)]


def integers(operator: Operator, ends: tuple[float, float], bits: int, quantizer: str = "symmetric") -> IntegerGraph:
    x = np.linspace(*ends, 4001).astype(np.float32)[None]
    graph = chain(x.shape, (operator, []))
    return expand_graph(graph, ranges(graph, x), configured(quantizer, bits))


def names(integer: IntegerGraph) -> set[str]:
    return {symbol.op for symbol in integer.graph.operators}


@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
@pytest.mark.parametrize("bits", [10, 12, 16])
@pytest.mark.parametrize("ends", ENDS, ids=str)
@pytest.mark.parametrize("line", LINES)
def test_the_error_is_within_the_stated_bound(line: str, ends: tuple[float, float], bits: int, quantizer: str) -> None:
    operator, gain = LINES[line]
    integer = integers(operator, ends, bits, quantizer)
    assert "elemwise_mul" in names(integer) and "table_lookup" not in names(integer)
    x = np.linspace(*ends, 4001).astype(np.float32)[None]
    lipschitz = steepest(operator, ends) / gain
    step = integer.inputs[0][1].scale
    shift = next((s for s in integer.graph.operators if s.name.endswith("_finer")), None)
    by = 0 if shift is None else int(integer.graph.value(shift.inputs[1]).item())
    ramp = step / 2.0 ** (by if shift is None or shift.op == "left_shift" else -by)
    rounded = ramp / 4 * (2 if ramp > step else 1)
    own = integer.outputs[0].step
    bound = gain * (lipschitz * step * (0.5 + 2.0**-7) + rounded) + own * (0.5 + 2.0**-6)
    assert np.abs(run(integer, x) - operator.evaluate(x)).max() <= bound


@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("line", LINES)
def test_few_integers_have_a_table(line: str, bits: int, quantizer: str) -> None:
    """Whose entries are off by half a step, and its data by another."""
    (operator, _), ends = LINES[line], (-3.0, 4.5)
    integer = integers(operator, ends, bits, quantizer)
    assert names(integer) == {"table_lookup"}
    x = np.linspace(*ends, 4001).astype(np.float32)[None]
    bound = integer.outputs[0].step / 2 + steepest(operator, ends) * integer.inputs[0][1].scale * (0.5 + 2.0**-7)
    assert np.abs(run(integer, x) - operator.evaluate(x)).max() <= bound


@pytest.mark.parametrize(
    "text",
    [
        "_mul_scalar(hard_swish(x), scalar=-0.5)",
        "_rminus_scalar(hard_swish(x), scalar=1)",
        "_rdiv_scalar(_plus_scalar(hard_swish(x), scalar=2), scalar=1)",
        "hard_swish(_mul_scalar(x, scalar=2))",
        "elemwise_mul(x, hard_swish(x))",
        "_mul_scalar(hard_swish(x), scalar=0)",
    ],
)
def test_what_is_no_rising_line_of_it_has_a_table(text: str) -> None:
    assert names(integers(ElementwiseRegion(text), (-3.0, 4.5), 12)) == {"table_lookup"}


@given(st.floats(-1e4, 0), st.floats(1e-3, 1e4), st.integers(9, 16), st.sampled_from(["symmetric", "affine"]))
def test_it_fits_32_bits_whatever_the_range(lo: float, hi: float, bits: int, quantizer: str) -> None:
    """`IntegerBuilder` refuses what does not; the ramp is hardly coarser than the data."""
    integer = integers(HardSwish(), (lo, hi), bits, quantizer)
    shifts = [s for s in integer.graph.operators if s.name.endswith("_finer") and s.op == "right_shift"]
    assert all(int(integer.graph.value(shift.inputs[1]).item()) <= -COARSEST for shift in shifts)
    x = np.linspace(lo, hi, 4001).astype(np.float32)[None]
    step = integer.inputs[0][1].scale
    assert np.abs(run(integer, x) - HardSwish().evaluate(x)).max() <= 4 * step + integer.outputs[0].step


def test_an_offset_far_beyond_the_range_leaves_no_room_for_products() -> None:
    for offset, made in ((2, "elemwise_mul"), (2000, "table_lookup")):
        operator = ElementwiseRegion(f"_plus_scalar(hard_swish(x), scalar={offset})")
        integer = integers(operator, (-3.0, 4.5), 16)
        assert made in names(integer)
        x = np.linspace(-3.0, 4.5, 4001).astype(np.float32)[None]
        assert np.abs(run(integer, x) - operator.evaluate(x)).max() < 4e-4 + integer.outputs[0].step


@pytest.mark.parametrize("bits", [12, 16])
@pytest.mark.parametrize("line", LINES)
def test_it_is_compiled_to_the_same_integers(line: str, bits: int) -> None:
    assert_compiled_alike(integers(LINES[line][0], (-3.0, 4.5), bits))

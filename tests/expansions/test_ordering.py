"""Elements in their order: the real values of what is taken, whatever scales its channels have."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.symbol.operators.ordering import TopK
from tests.matrix import Case, Data
from tests.quantization.networks import observe, quantize_and_run

SHAPE = (1, 4, 7, 6)
OPERATORS = (
    TopK(axis=1, k=2, ret_typ="value"),
    TopK(axis=1, k=0, ret_typ="value", is_ascend=True),
    TopK(k=3, ret_typ="value"),
    TopK(k=0, ret_typ="value", is_ascend=True),
)


@pytest.mark.parametrize("far", [0.0, 9.0])
@pytest.mark.parametrize("step", [None, 1, 3])
@pytest.mark.parametrize("operator", OPERATORS, ids=str)
def test_values_move_by_no_more_than_the_element_that_moves_most(operator: TopK, step: int | None, far: float) -> None:
    """With all quantizers, and with channels in groups, where all may turn out to have one scale.

    The input, which has 8 bits, and the tensor in groups are rounded by half a step each, and a shift between them by
    up to a whole one.
    """
    case = Case(operator, (Data(SHAPE),), step=step)
    samples = [{name: values + np.float32(far) for name, values in case.draw(seed).items()} for seed in (1, 2)]
    reach = max(float(np.abs(values).max()) for feeds in samples for values in feeds.values())
    for config in case.configs(8):
        outcome = quantize_and_run(case.graph, samples, config, observe(case.graph, samples))
        for (real, *_), (found, *_) in zip(outcome.real, outcome.approximate, strict=True):
            assert np.abs(found - real).max() <= 2.1 * reach / 127

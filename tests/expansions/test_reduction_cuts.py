"""The ways to cut a reduction: every product stands in one slice, and in a slice all have one scale."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from expansions.reduction.cuts import Cut, cuts
from expansions.reduction.form import Form
from expansions.reduction.operands import Operands
from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.options import WeightConfig
from mrt.quantization.quantizer import ChannelGroups
from mrt.symbol import Array, GraphBuilder, Interval, TensorType
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.linear import FullyConnected


def operands_of(
    channels: int, outputs: int, groups: int = 1, factors: tuple[int, ...] = (1,), step: int = 1
) -> Operands:
    """A 1 x 1 convolution of data whose every `step` channels have the next of these factors as their scale."""
    builder = GraphBuilder()
    operator = Convolution((1, 1), outputs, num_group=groups, no_bias=True)
    data = builder.input("x", TensorType((1, channels, 1, 1), "int8"))
    weight = np.ones((outputs, channels // groups, 1, 1), np.int8)
    op = builder.apply(operator, [data, builder.parameter("w", weight)], "y")
    in_groups = ChannelGroups(1, step, factors, (0,) * len(factors)) if len(factors) > 1 else None
    quantized = Quantized.of(data, 0.5, groups=in_groups)
    return Operands(op, quantized, Interval.of(-128, 127, data.shape), weight, Form(operator, 1, groups, (1, 1)))


def times_read(operands: Operands, cut: Cut) -> Array:
    """How often each product of an output and an input channel, counted over all groups, stands in the cut's slices."""
    outputs, inputs = operands.weight.shape[:2]
    found = np.zeros((outputs, inputs), int)
    for slices in cut.groups:
        for part in slices:
            found[part.outputs, part.columns] += 1
            width = part.last - part.first if part.groups == 1 else operands.channels // part.groups
            assert part.columns.stop - part.columns.start == width * operands.columns_per_channel
    return found


@pytest.mark.parametrize("weight_step", [None, 1, 3])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("factors", [(1,), (1, 2, 2, 8), (3, 3, 3, 3)])
def test_every_product_stands_in_one_slice(groups: int, factors: tuple[int, ...], weight_step: int | None) -> None:
    operands = operands_of(16, 8, groups, factors, step=4)
    options = WeightConfig.model_validate({"granularity": "layer" if weight_step is None else {"channel": weight_step}})
    found = list(cuts(operands, options))
    assert found[0].shift == 0 and [cut.shift for cut in found] == sorted(cut.shift for cut in found)
    for cut in found:
        assert (times_read(operands, cut) == 1).all()


def test_a_slice_ends_where_a_scale_changes() -> None:
    """Of the data after 4 and 12 channels, of the weight after every 5."""
    operands = operands_of(16, 2, factors=(1, 2, 2, 8), step=4)
    (slices,) = next(cuts(operands, WeightConfig.model_validate({"granularity": {"channel": 5}}))).groups
    assert [(part.first, part.last) for part in slices] == [(0, 4), (4, 5), (5, 10), (10, 12), (12, 15), (15, 16)]


def test_groups_that_read_one_scale_each_are_not_cut() -> None:
    (cut,) = cuts(operands_of(8, 8, groups=8, factors=(1, 2, 4, 8), step=2), WeightConfig())
    ((part,),) = cut.groups
    assert (part.first, part.last, part.groups, cut.shift) == (0, 8, 8, 0)


def test_a_sum_of_one_scale_is_cut_evenly_as_far_as_it_is_long() -> None:
    (_, *shifted) = islice(cuts(operands_of(6, 2), WeightConfig()), 4)
    assert [(cut.shift, cut.terms) for cut in shifted] == [(1, 2), (1, 4), (2, 2)]


def test_flattened_channels_have_several_columns() -> None:
    """(1, 2, 2, 3) read as rows of 12: six columns for each channel."""
    builder = GraphBuilder()
    data = builder.input("x", TensorType((1, 2, 2, 3), "int8"))
    operator, weight = FullyConnected(3, no_bias=True), np.ones((3, 12), np.int8)
    op = builder.apply(operator, [data, builder.parameter("w", weight)], "y")
    quantized = Quantized.of(data, 0.5, groups=ChannelGroups(1, 1, (1, 4), (0, 0)))
    operands = Operands(op, quantized, Interval.of(-128, 127, data.shape), weight, Form(operator, 1))
    (slices,) = next(cuts(operands, WeightConfig())).groups
    assert [part.columns for part in slices] == [slice(0, 6), slice(6, 12)]

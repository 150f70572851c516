"""FakeQuantize's chain with scales by channel becomes what OpenVINO's CPU plug-in makes of it, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from mrt.simplification.affine_rules import CarryShift
from mrt.simplification.chain import Add, Chain, Clip, Link, Multiply, Relu, Round, Step, fractions
from mrt.simplification.limit_rules import ClipBehindRound, MergeClips
from mrt.simplification.rule import Known, Rule
from mrt.symbol import Array, TensorType, variable

LOW, HIGH = np.array([["-3/2", "-128"]]), np.array([["9/4", "127"]])
"""The input's range in two channels."""


def by_channel(values: Array) -> Array:
    return np.array([[Fraction(value) for value in row] for row in values], object)


def chain_of(steps: Sequence[Step]) -> Chain:
    return Chain(variable("x", TensorType((1, 2))), tuple(Link(step, None) for step in steps))


def applied(rule: Rule, chain: Chain, at: int) -> Chain:
    found = rule.apply(Known(chain, [None] * (len(chain.links) + 1)), at)
    assert isinstance(found, Chain), found
    return found


def values(levels: int) -> Array:
    """Limits, every tie between levels, what is just beside them, and far beyond, for each channel."""
    low, high = by_channel(LOW), by_channel(HIGH)
    half_steps = [Fraction(n, 2 * (levels - 1)) for n in range(-5, 2 * levels + 5)]
    places = np.array(
        [[place] for s in half_steps for place in (s - Fraction(1, 999), s, s + Fraction(1, 999))], object
    )
    return np.asarray(low + places * (high - low), object)


def reference(levels: int, output_scale: Fraction, output_shift: Fraction) -> list[Step]:
    """clip, * input scale, + input shift, round, * output scale, + output shift."""
    low, high = by_channel(LOW), by_channel(HIGH)
    scale = np.asarray((levels - 1) / (high - low), object)
    middle: list[Step] = [Clip(low, high), Multiply(scale), Add(np.asarray(-low * scale, object)), Round()]
    return [*middle, Multiply(fractions(output_scale, 2)), Add(fractions(output_shift, 2))]


@pytest.mark.parametrize("levels", [2, 16, 255, 256])
def test_a_crop_by_channel_becomes_a_clip_of_the_tensor_behind_the_rounding(levels: int) -> None:
    chain = chain_of(reference(levels, Fraction(2, 7), Fraction(-5, 3)))
    moved = applied(ClipBehindRound(), chain, 0)
    kinds = [type(step) for step in moved.steps]
    assert kinds == [Multiply, Add, Round, Clip, Multiply, Add]
    clip = moved.steps[3]
    assert isinstance(clip, Clip) and clip.is_per_tensor
    assert [limit.flat[0] for limit in clip.limits] == [0, levels - 1]
    x = values(levels)
    assert (moved(x) == chain(x)).all()


def test_an_integer_shift_of_the_output_joins_that_of_the_input() -> None:
    """U8 to I8: 128 less behind the clip is 128 less before the rounding, the limits with it."""
    moved = applied(ClipBehindRound(), chain_of(reference(256, Fraction(1), Fraction(-128))), 0)
    without_scale = chain_of([step for at, step in enumerate(moved.steps) if at != 4])
    # The input's scale is 1 / 2^0 of the sum's: the factor that the rounding follows.
    scaled = chain_of([*without_scale.steps[:2], Multiply(fractions(1, 2)), *without_scale.steps[2:]])
    joined = applied(CarryShift(), scaled, 5)
    assert [type(step) for step in joined.steps] == [Multiply, Add, Multiply, Round, Clip]
    clip, x = joined.steps[-1], values(256)
    assert isinstance(clip, Clip) and [limit.flat[0] for limit in clip.limits] == [-128, 127]
    assert (joined(x) == scaled(x)).all()


def test_a_shift_that_is_no_integer_stays_behind_the_rounding() -> None:
    steps = [Add(fractions(3, 2)), Multiply(fractions(Fraction(1, 4), 2)), Round(), Add(fractions(Fraction(1, 2), 2))]
    known = Known(chain_of(steps), [None] * 5)
    assert CarryShift().apply(known, 3) == "what is added behind the rounding is no integer"


def test_a_relu_and_a_clip_are_one_clip() -> None:
    merged = applied(MergeClips(), chain_of([Relu(), Clip(fractions(-3, 2), fractions(5, 2))]), 0)
    x = values(16)
    assert len(merged.steps) == 1 and (merged(x) == np.minimum(np.maximum(x, Fraction(0)), Fraction(5))).all()

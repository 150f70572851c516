"""How far from float each operator may take its result: the rules of the error analysis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from expansions.table import FEW_ENTRIES
from mrt.symbol import Array, Interval, Symbol
from mrt.symbol.operators.activation import LeakyReLU
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.reduce import Max
from mrt.symbol.parabolas import PRECISION
from tests.error_bounds import INT32_MAX, ErrorAnalysis, Operand, Rescaling, Rule, aligned

RULES: dict[str, Rule] = {}
"""The error of each operator's result before it is rounded to another scale, by the operator's name."""


def rule(*ops: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, function))
        return function

    return register


@rule(*("Flatten", "Reshape", "transpose", "expand_dims", "squeeze", "slice", "slice_axis", "SwapAxis", "tile"))
@rule(*("repeat", "UpSampling", "depth_to_space", "space_to_depth", "slice_like"))
def moves(op: Symbol, operands: Sequence[Operand], analysis: ErrorAnalysis) -> Array:
    """Errors move as the values do; nothing is added."""
    return op.operator.evaluate(operands[0].error, *(operand.value for operand in operands[1:]))


@rule("Concat")
def joins(op: Symbol, operands: Sequence[Operand], analysis: ErrorAnalysis) -> Array:
    """Errors move as the values do; a parameter is off by half a step of the common scale."""
    return op.operator.evaluate(*(operand.error for operand in operands))


@rule("relu", "abs", "negative")
def contracts(op: Symbol, operands: Sequence[Operand], analysis: ErrorAnalysis) -> Array:
    """|f(a) - f(b)| <= |a - b|: ex."""
    return operands[0].error


@rule("max", "min")
def extremes(op: Symbol, operands: Sequence[Operand], analysis: ErrorAnalysis) -> Array:
    """A maximum moves by no more than the element that moves most."""
    operator = op.operator
    return Max(axis=operator.axis, keepdims=operator.keepdims, exclude=operator.exclude).evaluate(operands[0].error)


@rule("Pooling", "sum")
def pools(op: Symbol, operands: Sequence[Operand], analysis: ErrorAnalysis) -> Array:
    """Sums add the errors of the window's elements; a maximum moves by no more than the largest of them."""
    return op.operator.evaluate(operands[0].error)


@rule("Pad")
def pads(op: Symbol, operands: Sequence[Operand], analysis: ErrorAnalysis) -> Array:
    """Errors move as the values do; the constant is rounded, s / 2, but that 0 is exact.

    s is that of the operand's own quantizer where it is coarser than what is asked: such an operand stays as it is.
    """
    scale = max(float(np.max(operands[0].scale)), analysis.plan[op.inputs[0]].own.scale)
    border = scale / 2 if op.operator.constant_value else 0.0
    return replace(op.operator, constant_value=border).evaluate(operands[0].error)


@rule("clip", "_maximum_scalar", "_minimum_scalar")
def saturates(op: Symbol, operands: Sequence[Operand], analysis: ErrorAnalysis) -> Array:
    """max(ex, s / 2): of the value where it is inside, of a limit, which is rounded, where it is not."""
    return np.maximum(operands[0].error, operands[0].scale / 2)


@rule("LeakyReLU")
def leaks(op: Symbol, operands: Sequence[Operand], analysis: ErrorAnalysis) -> Array:
    """max(1, |slope|) ex + s / 2: both halves are rounded, of which one is 0. Curved kinds are tables."""
    operator = op.operator
    if isinstance(operator, LeakyReLU) and not operator.is_linear:
        return looks_up(op, operands, analysis)
    slope = np.asarray(operator.slope)
    if len(operands) > 1:
        slope = operands[1].value.reshape(1, -1, *(1,) * (op.type.rank - 2))
    steep = np.maximum(1.0, np.abs(slope))
    data = Operand(steep * operands[0].size, steep * operands[0].error, operands[0].scale)
    return analysis.rescaling(op).error(analysis.plan[op].common_scale, data)


@rule("elemwise_add", "elemwise_sub", "broadcast_sub", "add_n")
def adds(op: Symbol, operands: Sequence[Operand], analysis: ErrorAnalysis) -> Array:
    """ex + ey + ..., each with half a step of the common scale."""
    return np.asarray(sum(aligned(operand.error, op.type.rank) for operand in operands))


@rule("broadcast_add")
def adds_or_joins(op: Symbol, operands: Sequence[Operand], analysis: ErrorAnalysis) -> Array:
    """ex + ey; a constant joins the accumulator, whose step it is rounded to: ex + s / 2.

    Where that step is coarse the accumulator is brought to the sum's common scale first.
    """
    if not any(operand.is_parameter for operand in operands):
        return adds(op, operands, analysis)
    (data,) = (operand for operand in operands if not operand.is_parameter)
    scale = analysis.scale(op)
    return analysis.rescaling(op).error(scale, data) + scale / 2


@rule("elemwise_mul")
def multiplies(op: Symbol, operands: Sequence[Operand], analysis: ErrorAnalysis) -> Array:
    """|x| ey + |y| ex + ex ey."""
    x, y = _factors(operands, 1)
    return x.size * y.error + y.size * x.error + x.error * y.error


@rule("broadcast_mul")
def scales(op: Symbol, operands: Sequence[Operand], analysis: ErrorAnalysis) -> Array:
    """As elemwise_mul. By a constant c, one or one a channel: |c| ex, since it goes into the scale; by another:
    |c| ex + (|x| + ex) ec, ec half the constant's step, which is s / sx."""
    if not any(operand.is_parameter for operand in operands):
        return multiplies(op, operands, analysis)
    index = next(i for i, operand in enumerate(operands) if operand.is_parameter)
    constant, data = aligned(operands[index].value, op.type.rank), operands[1 - index]
    varies = [axis for axis, length in enumerate(constant.shape) if length > 1]
    if data.value.shape == op.shape and (not varies or (len(varies) == 1 and varies[0] > 0)):
        return np.abs(constant) * data.error
    error = data.error + analysis.rescaling(op).coarse
    return np.abs(constant) * error + (data.size + error) * analysis.scale(op) / data.scale / 2


@rule("square")
def squares(op: Symbol, operands: Sequence[Operand], analysis: ErrorAnalysis) -> Array:
    """2 |x| ex + ex^2."""
    data, _ = _factors([operands[0]] * 2, 1)
    return 2 * data.size * data.error + data.error**2


def _factors(operands: Sequence[Operand], terms: int) -> list[Operand]:
    """Factors, of whose products sums of `terms` are taken, as they are multiplied.

    Where the largest integers N, M would give terms N M beyond 32 bits, a factor has at most L steps on either side of
    zero: L = max(sqrt(room), room / min(N, M)), room being what 32 bits hold over terms; half of one is its error then.
    """
    reaches = [operand.reach / float(operand.scale.max()) for operand in operands]
    if terms * reaches[0] * reaches[1] <= INT32_MAX:
        return list(operands)
    room = INT32_MAX // terms
    limit = max(math.isqrt(room), room // max(int(min(reaches)), 1))
    return [
        replace(o, error=Rescaling(rounds=True).error(o.reach / limit, o)) if limit < reach else o
        for o, reach in zip(operands, reaches, strict=True)
    ]


@rule("Convolution", "Deconvolution", "FullyConnected")
def reduces(op: Symbol, operands: Sequence[Operand], analysis: ErrorAnalysis) -> Array:
    """sum over the taps of |w| ex + |x| ew + ex ew.

    A weight is off by half of its step; the zero-point terms of an affine pair are exact. The sum is the operator
    itself on non-negative data and weights. What partial sums lose where they are shifted comes in addition.
    """
    data, weight = operands
    is_transposed = isinstance(op.operator, Deconvolution)
    rows = op.operator.rows(weight.value) if is_transposed else weight.value
    steps, lost = _partial_sums(op, rows.shape, analysis)
    half = np.broadcast_to(steps.reshape(*steps.shape, *(1,) * (rows.ndim - 2)) / 2, rows.shape)
    error = op.operator.from_rows(half) if is_transposed else half
    apply = op.operator.evaluate
    return np.asarray(apply(data.size, error) + apply(data.error, weight.size + error) + lost)


def _partial_sums(op: Symbol, rows: tuple[int, ...], analysis: ErrorAnalysis) -> tuple[Array, Array]:
    """The step of every weight, (O, I), and the error of shifts, broadcastable to the output.

    The integer graph holds the sum whole, or a sum for each slice of the data's channels, which is multiplied and
    shifted before all are added. Where a sum's integers count g steps of the accumulator, s each, and its data's those
    of sx, its weights' steps are g s / sx. A shift adds half a step of what it gives.
    """
    graph = analysis.integer.graph
    axis = op.operator.data_channel_axis(op.inputs[0].type.rank)
    channels, own = op.inputs[0].shape[axis], int(getattr(op.operator, "num_group", 1))
    total = np.broadcast_to(np.moveaxis(analysis.scale(op), op.channel_axis, -1).reshape(-1), rows[0])
    steps, lost, width = np.zeros(rows[:2]), np.zeros(rows[0]), rows[1] * own // channels
    for sums in graph.operators:
        if sums.origin != op.name or sums.op != op.op or sums.name.endswith("_window"):
            continue
        part = sums.inputs[0]
        is_slice = part.op == "slice_axis" and part.origin == op.name
        first, data = (part.operator.begin, part.inputs[0]) if is_slice else (0, part)
        read = np.broadcast_to(np.moveaxis(analysis.stated(data, op.inputs[0]), axis, -1).reshape(-1), channels)
        gain, shifts = (np.broadcast_to(value, sums.shape[op.channel_axis]) for value in _gain(sums, analysis))
        for group in range(own):
            outputs = slice(group * rows[0] // own, (group + 1) * rows[0] // own)
            start, stop = group * channels // own, (group + 1) * channels // own
            begin, end = max(first, start), min(first + part.shape[axis], stop)
            if begin >= end:
                continue
            of_sum, shifted = (values[outputs] if len(values) == rows[0] else values for values in (gain, shifts))
            columns = slice((begin - start) * width, (end - start) * width)
            steps[outputs, columns] = (of_sum * total[outputs])[:, None] / np.repeat(read[begin:end], width)
            lost[outputs] += shifted * total[outputs]
    assert (steps > 0).all()
    shape = [1] * op.type.rank
    shape[op.channel_axis] = -1
    return steps, lost.reshape(shape)


def _gain(sums: Symbol, analysis: ErrorAnalysis) -> tuple[Array, Array]:
    """How many steps of the accumulator one step of a partial sum is, and what shifts on the way add, in these steps.

    One value each or one for each output channel of the sum.
    """
    graph = analysis.integer.graph
    gain, lost, symbol = np.ones(1), np.zeros(1), sums
    while symbol.name not in analysis.integer.scales:
        symbol = graph.consumers[symbol][0]
        if symbol.op in ("add_n", "Concat") or symbol.origin != sums.origin:  # a bias joins the correction's constant
            break
        if symbol.op == "broadcast_mul":
            factor = graph.value(symbol.inputs[1]).reshape(-1).astype(np.float64)
            gain, lost = gain * factor, lost * factor
        elif symbol.op == "right_shift":
            by = 2.0 ** -graph.value(symbol.inputs[1]).reshape(-1).astype(np.float64)
            gain, lost = gain * by, lost * by + 0.5
        elif symbol.op not in ("broadcast_add", "clip"):
            raise AssertionError(f"{symbol} on the way of a partial sum")
    return gain, lost


@rule("batch_dot", "dot")
def multiplies_matrices(op: Symbol, operands: Sequence[Operand], analysis: ErrorAnalysis) -> Array:
    """sum over the inner axis of |y| ex + |x| ey + ex ey."""
    left, right = _factors(operands, op.inputs[0].shape[-2 if op.operator.transpose_a else -1])
    apply = op.operator.evaluate
    return np.asarray(apply(left.size, right.error) + apply(left.error, right.size + right.error))


@rule(*("sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "reciprocal", "erf", "softsign", "hard_sigmoid", "softrelu"))
@rule(*("sin", "arctan", "sinh", "cosh", "arcsinh"))
@rule(*("cos", "silu", "hard_swish", "mish", "_power_scalar", "_rdiv_scalar", "elementwise_region"))
def looks_up(op: Symbol, operands: Sequence[Operand], analysis: ErrorAnalysis) -> Array:
    """L ex + s / 2, s the step of the entries and L the Lipschitz constant of the saturated function between the
    smallest and the largest value that the integers may stand for: of finite differences, and 1 % more. Entries of long
    tables may be off by 2^-14 of what they span besides."""
    data, own = operands[0], analysis.plan[op].own
    most = float(data.error.max())
    lo, hi = float(data.value.min()), float(data.value.max())
    least, highest = max(lo - most, 0.0) if lo >= 0 else lo - most, hi + most
    # The lower end is where functions with a pole are steep.
    reals = np.unique(
        np.r_[np.linspace(least, highest, 5001), np.linspace(least, least + (highest - least) / 50, 2001)]
    )
    with np.errstate(all="ignore"):
        found = np.asarray(op.operator.evaluate(reals), np.float64)
    found = np.clip(found, (own.lo - own.zero_point) * own.scale, (own.hi - own.zero_point) * own.scale)
    slope = 1.01 * np.abs(np.diff(found) / np.diff(reals)).max()
    is_long = (highest - least) / np.min(data.scale) > FEW_ENTRIES
    moved = (own.hi - own.lo + 1) * own.scale * 2.0**-PRECISION if is_long else 0.0
    return np.asarray(slope * data.error + analysis.scale(op) / 2 + moved)


@rule("floor", "ceil", "trunc", "round", "rint", "round_half_even", "sign")
def jumps(op: Symbol, operands: Sequence[Operand], analysis: ErrorAnalysis) -> Array:
    """How far a non-decreasing function goes within ex of x, and s / 2."""
    data, apply = operands[0], op.operator.evaluate
    here, below, above = (apply(data.value + move) for move in (0, -data.error, data.error))
    return np.maximum(here - below, above - here) + analysis.scale(op) / 2


@rule("_mod_scalar")
def starts_again(op: Symbol, operands: Sequence[Operand], analysis: ErrorAnalysis) -> Array:
    """What the remainder, which falls back where it starts again, may be within ex of x, and s / 2."""
    data = operands[0]
    here, error = op.operator.evaluate(data.value), np.broadcast_to(data.error, data.value.shape)
    around = op.operator.bounds(Interval(data.value - error, data.value + error, data.value.shape))
    return np.maximum(here - around.lo, around.hi - here) + analysis.scale(op) / 2


@rule("_maximum", "_minimum", "broadcast_maximum", "broadcast_minimum")
def compares(op: Symbol, operands: Sequence[Operand], analysis: ErrorAnalysis) -> Array:
    """max(ex, ey)."""
    return np.maximum(*(aligned(operand.error, op.type.rank) for operand in operands))


@rule("where")
def chooses(op: Symbol, operands: Sequence[Operand], analysis: ErrorAnalysis) -> Array:
    """The error of what is chosen, by a condition of 0 and values that are a step or more away from 0."""
    return op.operator.evaluate(operands[0].value, operands[1].error, operands[2].error)


@rule("argmax", "argmin")
def places(op: Symbol, operands: Sequence[Operand], analysis: ErrorAnalysis) -> Array:
    """How far away the farthest element is that errors may bring in front: 0 where one leads by more than they are."""
    data, axis = operands[0], op.operator.axis
    sign = 1 if op.op == "argmax" else -1
    value, error = (np.moveaxis(v.reshape(-1) if axis is None else v, axis or 0, -1) for v in (data.value, data.error))
    first = np.argmax(sign * value, axis=-1)[..., None]
    leading = np.take_along_axis(sign * value - error, first, -1)
    places = np.arange(value.shape[-1])
    return np.where(sign * value + error >= leading, np.abs(places - first), 0).max(axis=-1).reshape(op.shape)


@rule("take", "Embedding")
def reads(op: Symbol, operands: Sequence[Operand], analysis: ErrorAnalysis) -> Array:
    """The error of what is read; of a parameter s / 2. Indices are exact."""
    if op.op == "Embedding" or operands[0].is_parameter:
        return np.broadcast_to(analysis.scale(op) / 2, op.shape)
    return op.operator.evaluate(operands[0].error, operands[1].value)


@rule("softmax")
def normalizes_powers(op: Symbol, operands: Sequence[Operand], analysis: ErrorAnalysis) -> Array:
    """p (exp(2 e / t) - 1) + s / 2 + (1 + N) / (2 u).

    With inputs off by at most e along the axis each power and their sum are off by a factor within exp(+-e / t). The
    last rounding is half a step; the N powers and the one above are integers of the unit u = 2^31 / (1 / s + N / 2),
    each off by a half.
    """
    data, operator = operands[0], op.operator
    temperature, classes = operator.temperature or 1.0, op.shape[operator.axis]
    scale = analysis.scale(op)
    share = np.expm1(2 * data.error.max(axis=operator.axis, keepdims=True) / temperature)
    unit = min(2.0**31 / (1 / scale.max() + classes / 2), INT32_MAX / classes) - 1
    return operator.evaluate(data.value) * share + scale / 2 + (1 + classes) / (2 * unit)


@rule("log_softmax")
def normalizes_logarithms(op: Symbol, operands: Sequence[Operand], analysis: ErrorAnalysis) -> Array:
    """(ex + e) / t + s / 2 + s / 2 - log(1 - N / 2^17 - N^2 / 2^32), e the largest ex along the axis.

    The logarithm of the sum moves by no more than the input that moves most. The distance from the largest input is
    rescaled and the logarithm rounded, half a step each; the powers and their sum are rounded before.
    """
    data, operator = operands[0], op.operator
    temperature, classes = operator.temperature or 1.0, op.shape[operator.axis]
    moved = (data.error + data.error.max(axis=operator.axis, keepdims=True)) / temperature
    distance = (data.value.max(axis=operator.axis, keepdims=True) - data.value) / temperature
    scale = analysis.scale(op)
    rescaled = analysis.rescaling(op).error(scale, Operand(distance, moved, data.scale / temperature))
    return rescaled + scale / 2 - np.log1p(-classes / 2**17 - classes**2 / 2**32)


@rule("LayerNorm", "InstanceNorm")
def normalizes(op: Symbol, operands: Sequence[Operand], analysis: ErrorAnalysis) -> Array:
    """|gamma| en + |n| eg + en eg + steps, n = (x - mean) / deviation over C elements.

    The deviation, a norm of the centred elements, moves by no more than d = rms(ex); so n of the given integers is off
    by (ex + mean(ex) + |n| d) / (deviation - d). To that, the integers' own: 2^-13 + |n| (2^-12 + sqrt(C) 2^-15 span /
    deviation). eg is half a step of gamma's integers; beta and the shifts after it are each off by half a step of one
    of the scales that the result goes through.
    """
    data, gamma = operands[0], operands[1].value
    if op.op == "LayerNorm":
        axes, channel = (op.operator.axis % op.type.rank,), op.operator.axis % op.type.rank
    else:
        axes, channel = tuple(range(2, op.type.rank)), 1
    count = int(np.prod([op.shape[axis] for axis in axes]))
    centred = data.value - data.value.mean(axis=axes, keepdims=True)
    deviation = np.sqrt(np.square(centred).mean(axis=axes, keepdims=True) + op.operator.eps)
    moved = np.sqrt(np.square(data.error).mean(axis=axes, keepdims=True))
    least = np.maximum(deviation - moved, np.sqrt(op.operator.eps))
    normal = np.abs(centred) / deviation
    given = (data.error + data.error.mean(axis=axes, keepdims=True) + normal * moved) / least
    error = given + 2.0**-13 + (normal + given) * (2.0**-12 + np.sqrt(count) * 2.0**-15 * data.span / least)
    stored = analysis.integer.graph.parameters.get(op.inputs[1].name)
    largest = np.abs(gamma).max()
    step = 0.0 if stored is None else largest / max(float(np.abs(stored).max()) - 0.5, 0.5)
    shape = [1] * op.type.rank
    shape[channel] = -1
    result = (np.abs(gamma) + step / 2).reshape(shape) * error + normal * step / 2
    return result + sum(float(scale.max()) for scale in analysis.forms(op))


@rule("L2Normalization")
def normalizes_length(op: Symbol, operands: Sequence[Operand], analysis: ErrorAnalysis) -> Array:
    """(ex + |y| d) / (length - d) with d = |ex|, by which a length moves at most; and the integers' own: half a step,
    2^-13, and |y| (2^-12 + (N + 1) 2^-15 reach / length) for squares and a root of 32 bits over N elements."""
    data = operands[0]
    axes = op.operator.axes(op.type.rank)
    count = int(np.prod([op.shape[axis] for axis in axes]))
    length = np.sqrt(np.square(data.value).sum(axis=axes, keepdims=True) + op.operator.eps)
    moved = np.sqrt(np.square(data.error).sum(axis=axes, keepdims=True))
    least = np.maximum(length - moved, np.sqrt(op.operator.eps))
    normal = data.size / length
    given = (data.error + normal * moved) / least
    share = 2.0**-12 + (count + 1) * 2.0**-15 * data.reach / least
    return given + 2.0**-13 + (normal + given) * share + sum(float(scale.max()) for scale in analysis.forms(op))

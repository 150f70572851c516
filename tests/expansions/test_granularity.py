"""Channel groups: sums over slices are the sums they stand for, and what they cost or lose is what is said."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import mrt
from mrt.calibration import Range
from mrt.certificate import CERTIFICATE_FILE
from mrt.errors import VerificationError
from mrt.model import assemble
from mrt.quantization.expand import expand_graph
from mrt.quantization.integer.integer_graph import IntegerGraph
from mrt.symbol import Array, Graph, Operator, Symbol, run_passes
from mrt.symbol.operators.activation import Sigmoid
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.functions import Abs, Silu, Square
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.reduce import Mean, Sum
from tests.certificate.test_verify import refresh_digests
from tests.expansions.split_layers import (
    IMAGE,
    LAYERS,
    config_of,
    conv,
    even,
    names_of,
    normal,
    of_op,
    of_sixteen_channels,
    times,
)
from tests.matrix import NORMAL_FORM, PAIRS, assert_proven_at_extremes, assert_within_bounds, extreme_feeds
from tests.quantization.networks import chain, like_channels, observe, quantize_and_run, random_samples

IN_TURN = [
    (layers, pair, step)
    for (place, layers), (other, pair), (last, step) in itertools.product(
        enumerate(LAYERS), enumerate(PAIRS), enumerate([1, 4, 6])
    )
    if (place + other + last) % 2 == 0
]
"""Every other of all layers with all quantizers and channel groups."""


@pytest.mark.parametrize(("layers", "pair", "step"), IN_TURN)
def test_groups_of_one_range_give_the_integers_of_one_scale(layers: str, pair: tuple[str, str], step: int) -> None:
    """Bit for bit, also where 4 leaves a remainder of 2; zero points are odd and weights differ by output channel."""
    shape, steps = LAYERS[layers]
    spread = np.linspace(0.4, 1.1, shape[1])
    graph = chain(shape, times(*spread, rank=len(shape)), *steps)
    ranges = like_channels(graph, observe(graph, random_samples(graph)))
    whole = expand_graph(graph, ranges, config_of(pair=pair))
    split = expand_graph(graph, ranges, config_of(step, step, pair))
    for feeds in extreme_feeds(whole):
        for expected, found in zip(whole.graph.evaluate(feeds), split.graph.evaluate(feeds), strict=True):
            np.testing.assert_array_equal(found, expected)
    is_cut = {1: layers != "depthwise convolution", 4: "grouped" not in layers, 6: layers == "flattened"}
    is_cut[4] &= is_cut[1]
    text = str(split.graph)
    assert ("slice_axis" in text) == ("add_n" in text) == is_cut[step]
    assert "slice_axis" not in str(whole.graph)


def test_slices_reductions_and_their_sum_are_seen_in_the_text() -> None:
    graph = chain(IMAGE, times(1, 1, 2, 2, 4, 4), conv(4, 6))
    integer = expand_graph(graph, observe(graph, random_samples(graph)), config_of(4))
    lines = [line for line in str(integer.graph).splitlines() if "s1" in line]
    ops = [name for line in lines for name in re.findall(r"\b(slice_axis|Convolution|broadcast_mul|add_n)\(", line)]
    assert ops[:2] == ["slice_axis", "Convolution"] and ops.count("slice_axis") == ops.count("Convolution") == 2
    assert ops.count("add_n") == 1


FACTORS = (4, 8, 64)
"""Of ranges 1 : 2 : 16, the finest having 4 steps of the common scale."""


def exact_sums(data: Array, rows: Array) -> Array:
    """A convolution of stride 1 without border, in Python integers."""
    height, width = (data.shape[2 + k] - rows.shape[2 + k] + 1 for k in range(2))
    result = np.zeros((1, len(rows), height, width), object)
    for o, y, x in itertools.product(range(len(rows)), range(height), range(width)):
        window = data[0, :, y : y + rows.shape[2], x : x + rows.shape[3]]
        result[0, o, y, x] = sum(
            int(a) * int(b) for a, b in zip(window.reshape(-1).tolist(), rows[o].reshape(-1).tolist(), strict=True)
        )
    return result


@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
@pytest.mark.parametrize("operands", ["data", "weight", "both"])
def test_the_accumulator_is_the_sum_of_factors_times_partial_sums(operands: str, quantizer: str) -> None:
    """acc = sum of f_g P_g with the factors that the ranges ask for, in Python integers."""
    reach = [1.0, 1.0, 2.0, 2.0, 16.0, 16.0]
    weight = even(4, 6, 3, 3)
    weight *= np.reshape(reach[::-1] if operands != "data" else [1.0] * 6, (1, 6, 1, 1))
    graph = chain(IMAGE, times(*reach), (Convolution((3, 3), 4, no_bias=True), [weight]))
    ends = [(-r / 2, r) for r in reach]
    ranges = {
        "x": Range(-0.6, 1.1),
        "s0": Range(-8.0, 16.0, tuple(ends)),
        "s1": Range(-500.0, 500.0, ((-500.0, 500.0),) * 4),
    }
    config = config_of(None if operands == "weight" else 2, None if operands == "data" else 2, (quantizer, "symmetric"))
    integer = expand_graph(graph, ranges, config)
    names = names_of(integer.graph, "Convolution")
    sums = [integer.graph.by_name[name] for name in names]
    source = sums[0].inputs[0].inputs[0]
    accumulator = next(
        s for s in integer.graph.operators if s.origin == "s1" and s.name in integer.scales and s not in sums
    )
    rows = np.concatenate([integer.graph.value(s.inputs[1]) for s in sums], axis=1).astype(object)
    of_data = np.repeat(FACTORS, 2) if operands != "weight" else np.ones(6, int)
    of_weight = np.repeat([16, 2, 1], 2) if operands != "data" else np.ones(6, int)
    zero_points = np.broadcast_to(integer.zero_points.get(source.name, np.zeros(1, int)).reshape(-1), 6).astype(object)
    if quantizer == "affine":
        assert zero_points.all()
    for feeds in extreme_feeds(integer):
        data, found = integer.graph.with_outputs([source, accumulator]).evaluate(feeds)
        centred = data.astype(object) - zero_points.reshape(1, 6, 1, 1)
        expected = exact_sums(centred * (of_data * of_weight).astype(object).reshape(1, 6, 1, 1), rows)
        assert (found.astype(object) == expected).all()
    step = integer.scales[source.name].reshape(-1) / of_data
    np.testing.assert_allclose(step, step[0], rtol=1e-12)
    scale = integer.scales[accumulator.name].reshape(-1) / step[0]
    real = rows * of_weight.reshape(1, 6, 1, 1) * scale.reshape(-1, 1, 1, 1)
    off = np.abs(real.astype(float) - weight) / (of_weight.reshape(1, 6, 1, 1) * scale.reshape(-1, 1, 1, 1))
    assert off.max() <= 0.5 + 1e-6


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_one_zero_point_with_several_factors_is_taken_off_every_partial_sum(pair: tuple[str, str]) -> None:
    """Affine weights that are never negative have the lowest zero point in every group, whatever its scale."""
    weight = np.abs(even(4, 6, 3, 3)) * np.exp2(-np.random.default_rng(0).integers(0, 5, (4, 6, 1, 1)))
    graph = chain(IMAGE, times(1, 2, 3, 4, 5, 6), (Convolution((3, 3), 4, no_bias=True), [weight]))
    for step in (None, 2):
        integer = assert_within_bounds(graph, random_samples(graph), config_of(step, 2, pair), 0.3)
        assert_proven_at_extremes(integer)


def test_groups_of_a_grouped_convolution_that_read_several_scales_are_joined() -> None:
    """Of six channels four share one scale: the operator's first group reads that alone, the second one both."""
    graph = chain(IMAGE, times(1, 1, 1, 1, 8, 8), conv(4, 6, groups=2))
    integer = assert_within_bounds(graph, random_samples(graph), config_of(4))
    joined = integer.graph.by_name[names_of(integer.graph, "Concat")[0]]
    assert joined.operator.dim == 1
    assert [part.op for part in joined.inputs] == ["broadcast_mul", "add_n"]


def test_a_depthwise_convolution_has_a_scale_for_each_output_and_no_slices() -> None:
    graph = chain(IMAGE, times(1, 1, 4, 4, 16, 16), conv(6, 6, groups=6))
    integer = assert_within_bounds(graph, random_samples(graph), config_of(1))
    assert not names_of(integer.graph, "slice_axis")
    assert integer.scales[names_of(integer.graph, "Convolution")[0]].size == 6


@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
def test_channels_of_their_own_scale_recover_what_one_scale_loses(quantizer: str) -> None:
    """The channels reach from 1 to 2^-6, each is one output: the last, in one scale, has 2 of 127 steps."""
    spread = np.exp2(-np.arange(7.0))
    weight = np.diag(1 / spread).reshape(7, 7, 1, 1)
    graph = chain((1, 7, 9, 9), times(*spread), (Convolution((1, 1), 7, no_bias=True), [weight]))
    samples = random_samples(graph)
    pair = (quantizer, "symmetric")
    whole, split = (quantize_and_run(graph, samples, config_of(step, pair=pair)).relative_error for step in (None, 1))
    assert split < 0.01 and whole > 20 * split


def test_groups_that_were_never_seen_to_hold_anything_change_nothing() -> None:
    """Channels of zeros get a scale, and what they may hold later stays within its proof."""
    graph = chain(IMAGE, times(1, 1, 0, 0, 1e-36, 0.01), conv(4, 6))
    integer = assert_within_bounds(graph, random_samples(graph), config_of(1, 1), 0.3)
    assert_proven_at_extremes(integer)


NOTE = re.compile(r"(\d+) partial sums, shifted right by (\d+) .* off by at most (\S+)")


def lost_by_shifts(integer: IntegerGraph, feeds: dict[str, Array], op: str) -> tuple[float, float]:
    """How far the sum of the last layer is from that of its integers in real numbers, and what the note says."""
    graph = integer.graph
    sums = [symbol for symbol in graph.operators if symbol.op == op]
    accumulator = graph.by_name[next(name for name in integer.scales if graph.by_name[name].origin == sums[0].origin)]
    total, *parts = graph.with_outputs([accumulator, *sums]).evaluate(feeds)
    scale = integer.scales[accumulator.name].reshape(-1)
    exact = np.zeros(total.shape, object)
    shift = max(int(found[2]) for note in integer.notes if (found := NOTE.search(note)))
    for symbol, part in zip(sums, parts, strict=True):
        exact += without_shifts(graph, symbol, part.astype(object))
    error = np.abs(total.astype(object) * 2**shift - exact).astype(float) * scale.max() / 2**shift
    return float(error.max()), max(float(found[3]) for note in integer.notes if (found := NOTE.search(note)))


def without_shifts(graph: Graph, symbol: Symbol, value: Array) -> Array:
    """What a partial sum becomes before all are added, but for shifts: constants are added and multiplied; object."""
    while symbol.op != "add_n":
        symbol = graph.consumers[symbol][0]
        if symbol.op == "broadcast_mul":
            value = value * graph.value(symbol.inputs[1]).astype(object)
        elif symbol.op == "broadcast_add":
            value = value + graph.value(symbol.inputs[1]).astype(object)
    return value


@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
def test_shifted_partial_sums_of_several_scales_lose_no_more_than_the_note_says(quantizer: str) -> None:
    """At 16 bits with factors up to 2^8 and 2^4 the whole sum would need more than 32 bits."""
    weight = even(4, 6, 3, 3) * np.exp2(np.arange(6.0)).reshape(1, 6, 1, 1)
    graph = chain(IMAGE, times(*np.exp2(-1.5 * np.arange(6.0))), (Convolution((3, 3), 4, no_bias=True), [weight]))
    pair = (quantizer, "symmetric")
    integer = assert_within_bounds(graph, random_samples(graph), config_of(2, 2, pair, bits=12))
    assert any(NOTE.search(note) for note in integer.notes)
    assert_proven_at_extremes(integer)
    for feeds in extreme_feeds(integer):
        lost, stated = lost_by_shifts(integer, feeds, "Convolution")
        assert lost <= 1.01 * stated


def test_a_long_sum_with_one_scale_loses_no_more_than_the_note_says() -> None:
    weight = 1 - 0.2 * np.abs(normal(2, 2**17)).clip(0, 1)
    graph = chain((1, 2**17), (FullyConnected(2, no_bias=True), [weight]))
    integer = expand_graph(graph, {"x": Range(0.0, 1.0), "s0": Range(0.0, 9e4)}, config_of())
    assert any(NOTE.search(note) for note in integer.notes)
    errors = []
    for feeds in extreme_feeds(integer):
        lost, stated = lost_by_shifts(integer, feeds, "FullyConnected")
        errors.append(lost)
        assert lost <= 1.01 * stated
    assert max(errors) > 0


def saved(integer: IntegerGraph, folder: Path) -> Path:
    assemble(integer, None, {}).save(folder)
    return folder


def test_the_certificate_grows_with_the_number_of_groups_and_no_faster(tmp_path: Path) -> None:
    groups = (2, 4, 8, 16)
    sizes = [
        (saved(of_sixteen_channels(16 // count), tmp_path / str(count)) / CERTIFICATE_FILE).stat().st_size
        for count in groups
    ]
    each = np.diff(sizes) / np.diff(groups)
    assert each.max() < 1.1 * each.min()
    assert all(mrt.verify(tmp_path / str(count)).max_bits <= 32 for count in groups)


def test_a_tampered_weight_of_a_slice_is_found(tmp_path: Path) -> None:
    folder = saved(of_sixteen_channels(4), tmp_path)
    arrays = load_file(folder / "params.safetensors")
    name = next(n for n, values in arrays.items() if "slice8" in n and values.ndim == 4)
    arrays[name] = np.full_like(arrays[name], 127)
    save_file(arrays, folder / "params.safetensors")
    refresh_digests(folder)
    with pytest.raises(VerificationError, match=r"is derived|bits, 32 are allowed"):
        mrt.verify(folder)


def test_an_altered_slice_is_found(tmp_path: Path) -> None:
    """A slice that begins a channel earlier reads another scale, while all shapes stay right."""
    folder = saved(of_sixteen_channels(4), tmp_path)
    path = folder / "graph.json"
    graph = json.loads(path.read_text())
    node = next(n for n in graph["nodes"] if n["op"] == "slice_axis" and n["attrs"]["begin"] == "4")
    node["attrs"] |= {"begin": "3", "end": "7"}
    path.write_text(json.dumps(graph))
    with pytest.raises(VerificationError, match="graph.json"):
        mrt.verify(folder)


@pytest.mark.parametrize(
    "operator", [Sum((2, 3)), Sum((2, 3), keepdims=True), Mean((-1,)), Square(), Sigmoid(), Silu()]
)
def test_groups_recover_channels_that_one_scale_loses(operator: Operator) -> None:
    """The narrowest of six channels has 2 of 127 steps in one scale; the layer behind reads every one as loud."""
    spread = np.exp2(-np.arange(6.0))
    samples = [{"x": np.abs(feeds["x"])} for feeds in random_samples(chain(IMAGE, times(*spread)))]
    steps = run_passes(chain(IMAGE, times(*spread), (operator, [])), NORMAL_FORM).graph
    middle = observe(steps, samples)[steps.outputs[0].name].channels
    width = np.array([hi - lo for lo, hi in middle])
    graph = chain(IMAGE, times(*spread), (operator, []), (Abs(), []))
    errors = {}
    for step in (None, 1):
        outcome = quantize_and_run(run_passes(graph, NORMAL_FORM).graph, samples, config_of(step))
        off = np.stack([np.abs(a[0] - r[0]) for a, r in zip(outcome.approximate, outcome.real, strict=True)])
        axes = tuple(axis for axis in range(off.ndim) if axis != 2)
        errors[step] = (off.max(axis=axes) / width)[-1]
    assert errors[1] < errors[None] / 4


def test_one_channel_of_many_pixels_is_cut_where_its_sum_does_not_fit() -> None:
    """A layer that flattens it itself: the weights keep their bits, as those behind a Flatten do."""
    length = 300
    graph = chain((1, 1, length, length), (FullyConnected(1, no_bias=True), [np.ones((1, length**2))]))
    integer = expand_graph(graph, {"x": Range(0.0, 1.0), "s0": Range(0.0, length**2)}, config_of())
    assert len(of_op(integer, "slice_axis")) > 1
    assert not any("bits instead" in note for note in integer.notes)

"""Inputs of integers that nobody declares: token ids have the rows of their table, masks are 0 and 1."""

from __future__ import annotations

import numpy as np
import pytest

import mrt
from mrt.errors import DataError, QuantizationError
from mrt.quantization.integer_inputs import integer_inputs
from mrt.quantization.options import InputConfig, QuantizationConfig
from mrt.symbol import Graph, GraphBuilder, Symbol, TensorType
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.operators.integer import Cast
from mrt.symbol.operators.linear import BatchDot, FullyConnected
from mrt.symbol.operators.normalization import Softmax
from mrt.symbol.operators.scalar import MulScalar, RMinusScalar
from mrt.symbol.operators.selection import Embedding, Where
from mrt.symbol.operators.transform import ExpandDims, Reshape, Take

ROWS, LENGTH, WIDTH = 40, 5, 8


def table(builder: GraphBuilder, rows: int, name: str) -> Symbol:
    return builder.parameter(name, np.random.default_rng(rows).uniform(-0.6, 0.6, (rows, WIDTH)).astype(np.float32))


def attention(lowest: float = -1e4) -> Graph:
    """Tokens and their mask, as (1 - mask) * lowest is added to the scores of words for words."""
    builder = GraphBuilder()
    ids = builder.input("ids", TensorType((2, LENGTH), "int64"))
    mask = builder.input("mask", TensorType((2, LENGTH), "int64"))
    flat = builder.apply(Reshape(shape=(0, LENGTH)), [builder.apply(Cast(dtype="int32"), [ids], "narrow")], "flat")
    x = builder.apply(Embedding(ROWS, WIDTH), [flat, table(builder, ROWS, "table")], "words")
    real = builder.apply(Cast(dtype="float32"), [builder.apply(Reshape(shape=(0, 1, LENGTH)), [mask], "row")], "real")
    forbidden = builder.apply(MulScalar(lowest), [builder.apply(RMinusScalar(1.0), [real], "off")], "forbidden")
    scores = builder.apply(BatchDot(transpose_b=True), [x, x], "scores")
    shares = builder.apply(Softmax(axis=2), [builder.apply(BroadcastAdd(), [scores, forbidden], "sum")], "shares")
    return builder.graph([builder.apply(BatchDot(), [shares, x], "mixed")])


def test_a_mask_that_chooses_what_is_forbidden_is_0_or_1() -> None:
    """As DeBERTa has it: pairs of a mask, which also blanks the words, choose the lowest float instead of scores."""
    builder = GraphBuilder()
    mask = builder.input("mask", TensorType((2, LENGTH), "int64"))
    ids = builder.input("ids", TensorType((2, LENGTH), "int64"))
    x = builder.apply(Embedding(ROWS, WIDTH), [ids, table(builder, ROWS, "table")], "x")
    row, column = (builder.apply(ExpandDims(axis=axis), [mask], f"axis{axis}") for axis in (1, 2))
    pairs = builder.apply(BroadcastMul(), [row, column], "pairs")
    real = builder.apply(Cast(dtype="float32"), [column], "real")
    words = builder.apply(BroadcastMul(), [x, real], "words")
    scores = builder.apply(BatchDot(transpose_b=True), [words, words], "scores")
    lowest = builder.parameter("lowest", np.full((1, 1, 1), np.finfo(np.float32).min))
    shares = builder.apply(Softmax(axis=2), [builder.apply(Where(), [pairs, scores, lowest], "allowed")], "shares")
    graph = builder.graph([builder.apply(BatchDot(), [shares, words], "mixed")])
    assert {name: each.range for name, each in integer_inputs(graph, {}).items()} == {"ids": (0, 39), "mask": (0, 1)}


@pytest.mark.parametrize("chooses", [True, False])
def test_a_mask_that_joins_a_bias_of_the_scores_is_0_or_1(chooses: bool) -> None:
    """As T5 has it: the mask chooses the lowest float instead of a position bias, or is added to it first."""
    builder = GraphBuilder()
    mask = builder.input("mask", TensorType((2, 1, LENGTH), "int64"))
    scores = builder.input("scores", TensorType((2, LENGTH, LENGTH)))
    bias = builder.parameter("bias", np.linspace(-2, 2, LENGTH**2, dtype=np.float32).reshape(1, LENGTH, LENGTH))
    lowest = np.finfo(np.float32).min
    if chooses:
        total = builder.apply(Where(), [mask, bias, builder.parameter("lowest", np.full((), lowest))], "total")
    else:
        absent = builder.apply(RMinusScalar(1.0), [builder.apply(Cast(dtype="float32"), [mask], "real")], "absent")
        total = builder.apply(BroadcastAdd(), [bias, builder.apply(MulScalar(lowest), [absent], "lowered")], "total")
    masked = builder.apply(BroadcastAdd(), [scores, total], "masked")
    graph = builder.graph([builder.apply(Softmax(axis=2), [masked], "shares")])
    assert {name: each.range for name, each in integer_inputs(graph, {}).items()} == {"mask": (0, 1)}


def feeds(seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    mask = (np.arange(LENGTH) < random.integers(2, LENGTH + 1, (2, 1))).astype(np.int64)
    return {"ids": random.integers(0, ROWS, (2, LENGTH)), "mask": mask}


def test_token_ids_and_masks_need_no_option() -> None:
    graph = attention()
    model = mrt.quantize(graph, [feeds(seed) for seed in range(6)])
    assert {e.name: (e.dtype, e.lo, e.hi, float(e.scale), e.zero_point) for e in model.inputs} == {
        "ids": ("int32", 0, ROWS - 1, 1.0, 0),
        "mask": ("int32", 0, 1, 1.0, 0),
    }
    given = feeds(9)
    integers = model.quantize_inputs(given)
    expected = model.graph.evaluate(integers)
    np.testing.assert_array_equal(model.compile().run_integer(integers), expected[0])
    (wanted,), (found,) = graph.evaluate(given), model.dequantize_outputs(expected)
    assert np.square(found - wanted).sum() < 1e-3 * np.square(wanted).sum()  # 30 dB


def test_an_id_beyond_the_rows_is_refused_by_name_value_and_range() -> None:
    model = mrt.quantize(attention(), [feeds(seed) for seed in range(6)], QuantizationConfig(preset="fast"))
    with pytest.raises(DataError, match=r"ids holds \[40, 40\]; integers in \[0, 39\] are needed"):
        model.quantize_inputs({**feeds(9), "ids": np.full((2, LENGTH), ROWS)})
    with pytest.raises(DataError, match=r"calibration batch 0.*ids"):
        mrt.quantize(attention(), [{**feeds(1), "ids": np.full((2, LENGTH), -1)}])


def test_what_is_declared_stays() -> None:
    declared = {"ids": InputConfig(dtype="int16", range=(0, 9))}
    assert "ids" not in integer_inputs(attention(), declared)
    model = mrt.quantize(
        attention(),
        [{**feeds(seed), "ids": np.full((2, LENGTH), seed)} for seed in range(6)],
        QuantizationConfig(preset="fast", inputs=declared),
    )
    assert {e.name: (e.dtype, e.hi) for e in model.inputs} == {"ids": ("int16", 9), "mask": ("int32", 1)}


@pytest.mark.parametrize("mode, lowest", [("clip", 0), ("wrap", -7)])
def test_several_tables_share_the_range_that_all_have(mode: str, lowest: int) -> None:
    """Of 7 and of 9 rows; where indices wrap, those below 0 count from the end."""
    builder = GraphBuilder()
    ids = builder.input("ids", TensorType((2, LENGTH), "int32"))
    parts = [
        builder.apply(Take(axis=0, mode=mode), [table(builder, rows, f"table{rows}"), ids], f"rows{rows}")
        for rows in (7, 9)
    ]
    graph = builder.graph(parts)
    assert integer_inputs(graph, {}) == {"ids": InputConfig(dtype="int32", range=(lowest, 6))}


def test_integers_of_which_nothing_is_known_must_be_declared() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, WIDTH), "int32"))
    real = builder.apply(Cast(dtype="float32"), [x], "real")
    graph = builder.graph(
        [builder.apply(FullyConnected(3, no_bias=True), [real, builder.parameter("w", np.ones((3, WIDTH), "f4"))], "y")]
    )
    assert integer_inputs(graph, {}) == {}
    with pytest.raises(QuantizationError, match=r"quantize\.inputs"):
        mrt.quantize(graph, [np.ones((1, WIDTH), np.int32)])


def test_a_small_bias_of_the_scores_is_no_mask() -> None:
    assert "mask" not in integer_inputs(attention(lowest=-3.0), {})

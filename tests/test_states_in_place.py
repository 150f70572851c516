"""States of which a call changes some rows, such as the caches of a decoder: changed where they lie."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import mrt
from mrt.backend.rewrites.rows_of_states import RowsOfStates, states_in_place
from mrt.errors import DataError
from mrt.model import QuantizedModel
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Array, Graph, GraphBuilder, NumpyRunner, Operator, TensorType
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.linear import BatchDot
from mrt.symbol.operators.reduce import Sum
from mrt.symbol.operators.selection import Where
from mrt.symbol.operators.state import Assign
from mrt.symbol.operators.transform import Reshape
from mrt.symbol.states import states_of
from mrt.symbol.stream import stream_of
from tests.cached_rows import AT, PLACES, STEPS, WIDTH, X, quantized


@pytest.fixture(scope="module", params=[False, True], ids=["the cache", "another state, too"])
def model(request: pytest.FixtureRequest) -> QuantizedModel:
    return quantized(request.param)


def stepped(model: QuantizedModel, feeds: Mapping[str, Array]) -> tuple[list[Array], dict[str, Array]]:
    """The integer outputs step by step, and the states behind the last one, by NumPy."""
    stream = model.stream()
    return stream.along(feeds), stream.states


def test_a_state_that_gets_rows_is_one_and_another_is_not(model: QuantizedModel) -> None:
    assert states_in_place(model.graph) == {"cache"}
    changed = RowsOfStates().run(model.graph).graph
    assert changed.count_operators().get("update_rows") == 1 and "where" not in changed.count_operators()
    random = np.random.default_rng(0)
    feeds = {s.name: random.integers(0, 2, s.shape).astype(s.dtype) for s in model.graph.inputs}
    for found, wanted in zip(changed.evaluate(feeds), model.graph.evaluate(feeds), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("threads", [1, 2])
def test_steps_give_what_evaluation_gives(model: QuantizedModel, threads: int) -> None:
    """From the second step on the state is given where it is written."""
    module = model.compile({"threads": threads})
    stream, (wanted,), states = module.stream(), *stepped(model, {"x": X, "at": AT})
    for step in range(len(X)):
        found = stream({"x": X[step : step + 1], "at": AT[step : step + 1]})
        np.testing.assert_array_equal(found, wanted[step : step + 1])
    for name, held in states.items():
        np.testing.assert_array_equal(stream.states[name], held)


def test_a_state_stays_in_one_memory(model: QuantizedModel) -> None:
    stream, places = model.compile({"threads": 1}).stream(), []
    for _ in range(4):
        stream({"x": X[:1], "at": AT[:1]})
        places.append({name: array.ctypes.data for name, array in stream._values.items()})
    assert len({each["cache"] for each in places}) == 1
    if "kept" in places[0]:
        # What is read while the next one is written never lies there.
        assert all(a["kept"] != b["kept"] for a, b in pairwise(places))


def test_a_stream_goes_on_after_its_module_was_closed(model: QuantizedModel) -> None:
    """Its cache lies in memory that the next call does not write to then, and is brought from there."""
    module = model.compile({"threads": 1})
    stream, (wanted,), _ = module.stream(), *stepped(model, {"x": X, "at": AT})
    for step in range(STEPS):
        np.testing.assert_array_equal(
            stream({"x": X[step : step + 1], "at": AT[step : step + 1]}), wanted[step : step + 1]
        )
        module.close()


def test_a_call_leaves_the_states_that_it_is_given(model: QuantizedModel) -> None:
    module = model.compile()
    random = np.random.default_rng(5)
    feeds = {
        s.name: random.integers(-9, 9, s.shape).astype(s.dtype) if s.name != "at" else AT[4:5].astype(s.dtype)
        for s in model.rebatched(1).graph.inputs
    }
    before = {name: array.copy() for name, array in feeds.items()}
    wanted = model.rebatched(1).graph.evaluate(feeds)
    for found, meant in zip(module.run_integer(feeds), wanted, strict=True):
        np.testing.assert_array_equal(found, meant)
    for name, array in before.items():
        np.testing.assert_array_equal(feeds[name], array)


@pytest.mark.parametrize("threads", [1, 2])
def test_batches(model: QuantizedModel, threads: int) -> None:
    """Several streams side by side, as many as the batch and fewer, have caches of their own."""
    module = model.compile({"threads": threads}, batch=3)
    for count in (3, 2):
        stream = module.stream()
        parts = [np.arange(STEPS) + shift for shift in range(count)]
        alone = [stepped(model, {"x": X[part], "at": AT[part]})[0][0] for part in parts]
        for step in range(STEPS):
            at = [part[step] for part in parts]
            np.testing.assert_array_equal(stream({"x": X[at], "at": AT[at]}), [each[step] for each in alone])


def test_a_refused_call_leaves_the_states(model: QuantizedModel) -> None:
    stream = model.compile().stream()
    stream({"x": X[:1], "at": AT[:1]})
    before = stream.states
    with pytest.raises(DataError, match="NaN"):
        stream({"x": np.full_like(X[:1], np.nan), "at": AT[1:2]})
    for name, held in stream.states.items():
        np.testing.assert_array_equal(held, before[name])


SCORES = BatchDot(transpose_b=True)


def attention(*others: Operator, first: Operator | None = None, initial: float = 0.0) -> Graph:
    """Products of x, or of what `first` makes of it, with the rows of a cache, which other operators read, too."""
    builder = GraphBuilder()
    x, at = (builder.input(name, TensorType((1, n))) for name, n in (("x", WIDTH), ("at", PLACES)))
    cache = builder.input("cache", TensorType((1, PLACES, WIDTH)))
    made = x if first is None else builder.apply(first, [x], "first")
    rows = builder.apply(Reshape(shape=(0, 1, WIDTH)), [made], "rows")
    is_new = builder.apply(Reshape(shape=(0, PLACES, 1)), [at], "is_new")
    following = builder.apply(Where(), [is_new, rows, cache], "following")
    zero = builder.parameter("zero", np.full((1, 1, 1), initial, np.float32))
    found = [builder.apply(SCORES, [rows, following], "scores")]
    found += [builder.apply(each, [following], f"other{i}") for i, each in enumerate(others)]
    return builder.graph([*found, builder.apply(Assign(), [following, cache, zero], "cache_next")])


@pytest.mark.parametrize(
    ("graph", "overrides", "dtype", "as_it_is"),
    [
        (attention(), {}, "int8", True),
        (attention(), {"following": {"activation": {"bits": 12}}}, "int16", True),
        (attention(), {"cache": {"activation": {"bits": 16}}}, "int16", False),
        (attention(Sum(axis=(1,))), {}, "int16", False),
        (attention(), {"following": {"activation": {"quantizer": "affine"}}}, "int16", False),
        (attention(first=Relu()), {}, "uint8", True),
        (attention(first=Relu(), initial=-1.0), {}, "int16", False),
    ],
    ids=[
        "products",
        "of 12 bits",
        "asked for by name",
        "a sum reads it, too",
        "affine",
        "never negative",
        "negative at first",
    ],
)
def test_a_cache_has_the_bits_of_the_products_that_read_it(
    graph: Graph, overrides: dict[str, Any], dtype: str, as_it_is: bool
) -> None:
    """as_it_is: whether nothing requantizes all of it at each call."""
    config = QuantizationConfig.model_validate({"preset": "fast", "overrides": overrides})
    made = mrt.quantize(graph, {"x": X, "at": AT}, config, runner=NumpyRunner())
    (state,) = states_of(made.graph)
    assert state.input.dtype == dtype
    readers = {reader.op for reader in made.graph.consumers[state.output.inputs[0]]}
    assert ("batch_dot" in readers) is as_it_is
    wanted = stream_of(graph, NumpyRunner()).along({"x": X, "at": AT})[0]
    found = made.compile().stream().along({"x": X, "at": AT})[0]
    assert 10 * np.log10(np.square(wanted).sum() / np.square(wanted - found).sum()) > 30


def graph_of(condition: tuple[int, ...], reads_more: bool = False, row: int = 24) -> Graph:
    builder = GraphBuilder()
    held = builder.input("held", TensorType((1, 4, row), "int8"))
    is_new = builder.input("is_new", TensorType(condition, "int8"))
    rows = builder.input("rows", TensorType((1, 1, row), "int8"))
    following = builder.apply(Where(), [is_new, rows, held], "following")
    zero = builder.parameter("zero", np.zeros((1, 1, 1), np.int8))
    outputs = [builder.apply(Assign(), [following, held, zero], "next")]
    if reads_more:
        outputs.append(builder.apply(Sum(axis=(1,)), [held], "sum"))
    return builder.graph(outputs)


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        (graph_of((1, 4, 1)), {"held"}),
        (graph_of((1, 1, 1)), {"held"}),
        (graph_of((1, 4, 24)), set()),
        (graph_of((1, 4, 1), reads_more=True), set()),
        (graph_of((1, 4, 1), row=8), set()),
    ],
    ids=["rows", "all or nothing", "single elements", "the old state is read, too", "short rows"],
)
def test_which_states_are(graph: Graph, found: set[str]) -> None:
    assert states_in_place(graph) == found

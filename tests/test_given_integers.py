"""Integers for a model's inputs: of any dtype the same ones, exactly, and nothing but what was declared."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console

import mrt
from mrt.calibration import Range
from mrt.config import load_config
from mrt.errors import ConfigError, DataError, QuantizationError
from mrt.pipeline import run_pipeline
from mrt.progress import Reporter
from mrt.quantization.expand import expand_graph
from mrt.symbol import Graph, GraphBuilder, NumpyRunner, TensorType
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.selection import Embedding
from mrt.symbol.quantized_tensor import TensorQuantization

RNG = np.random.default_rng(11)
DTYPES = [
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
]
IDS = {"dtype": "int32", "range": (0, 50)}
PIXELS = {"dtype": "uint8", "scale": 1 / 127.5, "zero_point": 128}


def embedding() -> Graph:
    builder = GraphBuilder()
    ids = builder.input("ids", TensorType((1, 4), "int64"))
    table = builder.parameter("table", RNG.standard_normal((100, 5)).astype(np.float32))
    return builder.graph([builder.apply(Embedding(input_dim=100, output_dim=5), [ids, table], "rows")])


def convolution() -> Graph:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3, 4, 4)))
    weight = builder.parameter("weight", RNG.standard_normal((2, 3, 1, 1)).astype(np.float32))
    return builder.graph([builder.apply(Convolution(kernel=(1, 1), num_filter=2, no_bias=True), [x, weight], "y")])


def quantized(graph: Graph, data: Any, **inputs: Any) -> mrt.QuantizedModel:
    return mrt.quantize(graph, data, mrt.QuantizationConfig(preset="mrt", inputs=inputs), runner=NumpyRunner())


def images(count: int = 4) -> np.ndarray:
    return RNG.integers(0, 256, (count, 3, 4, 4)).astype(np.uint8)


def given(storage: str = "int32", lo: int = 0, hi: int = 50, scale: float = 1.0, zero: int = 0) -> TensorQuantization:
    return TensorQuantization("ids", (1, 1), storage, scale, zero, lo, hi, is_given=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("storage", "lo", "hi"), [("int32", 0, 50), ("int8", -128, 127), ("uint8", 3, 255)])
def test_every_dtype_gives_the_same_integers_and_refuses_the_same(dtype: str, storage: str, lo: int, hi: int) -> None:
    entry = given(storage, lo, hi)
    for number in (-129, -128, -1, 0, 1, 2, 3, 50, 51, 99, 127, 128, 255, 256, 2**31, 2**63):
        x = np.array([[number]], object).astype(dtype) if _holds(dtype, number) else None
        if x is None:
            continue
        if lo <= number <= hi:
            found = entry.quantize(x)
            assert (found.dtype.name, int(found[0, 0])) == (storage, number)
        else:
            with pytest.raises(DataError, match="ids holds"):
                entry.quantize(x)


def _holds(dtype: str, number: int) -> bool:
    kind = np.dtype(dtype).kind
    if kind == "b":
        return number in (0, 1)
    if kind == "f":
        return abs(number) <= float(np.finfo(dtype).max) and int(np.dtype(dtype).type(float(number))) == number
    return np.iinfo(dtype).min <= number <= np.iinfo(dtype).max


def test_integers_do_not_pass_through_float32() -> None:
    """2^24 + 1 is no float32."""
    entry = given("int32", 0, 2**31 - 1)
    for dtype in ("int64", "uint32", "float64"):
        found = entry.quantize(np.array([[2**24 + 1], [2**31 - 1]], dtype))
        assert found.tolist() == [[2**24 + 1], [2**31 - 1]]
    with pytest.raises(DataError, match="2147483648"):
        entry.quantize(np.array([[2**31]]))
    with pytest.raises(DataError, match=r"2\.147.*e\+09|2147483648"):
        entry.quantize(np.array([[2.0**31]]))


@pytest.mark.parametrize("value", [0.5, -1.0, 51.0, np.inf, -np.inf, np.nan, 1e30])
def test_floats_are_refused_that_are_no_declared_integer(value: float) -> None:
    with pytest.raises(DataError, match="ids holds"):
        given().quantize(np.array([[value]]))


@pytest.mark.parametrize("value", [np.array([["1"]]), np.array([[None]]), np.array([[1 + 0j]])])
def test_what_is_no_number_is_refused(value: np.ndarray) -> None:
    with pytest.raises(DataError, match=rf"ids is {value.dtype}; integers in \[0, 50\] are needed"):
        given().quantize(value)


def test_real_values_are_rounded_and_may_leave_the_range_by_less_than_a_step() -> None:
    entry = given("uint8", 0, 255, 1 / 127.5, 128)
    real = np.array([[-128 / 127.5], [0.0], [0.3 / 127.5], [127 / 127.5], [1.0]])
    assert entry.quantize(real).tolist() == [[0], [128], [128], [255], [255]]
    for beyond in (128.1 / 127.5, -129.1 / 127.5, 255.0, np.inf):
        with pytest.raises(DataError, match=r"real values .* integers in \[0, 255\] .* floats in \[-1.0.*, 0.996"):
            entry.quantize(np.array([[beyond]]))


def test_the_module_and_the_model_take_the_same() -> None:
    ids, graph = np.array([[3, 50, 0, 7]]), embedding()
    model = quantized(graph, [np.array([[0, 1, 2, 50]])], ids=IDS)
    module = model.compile()
    expected = module(ids)
    np.testing.assert_allclose(expected, graph.evaluate({"ids": ids})[0], atol=0.05)
    for dtype in DTYPES[1:]:
        np.testing.assert_array_equal(module(ids.astype(dtype)), expected)
        np.testing.assert_array_equal(model.quantize_inputs(ids.astype(dtype))["ids"], ids)
    wrong = [ids + 49, ids - 1, (ids + 49).astype(np.int32), ids + 0.5, ids * np.nan, None, [[1], [2, 3]]]
    for call in (model.quantize_inputs, module):
        for x in wrong:
            with pytest.raises(DataError, match="ids"):
                call(x)


@pytest.mark.parametrize("wrong", [99, -1, 1.5, 2**40])
def test_calibration_refuses_what_is_not_declared(wrong: float) -> None:
    with pytest.raises(DataError, match=r"calibration batch 1: input ids holds .*\[0, 50\] are needed"):
        quantized(embedding(), [np.array([[0, 1, 2, 3]]), np.array([[0, 1, 2, wrong]])], ids=IDS)


def test_a_range_that_is_declared_after_calibration_is_held_against_it() -> None:
    ranges = {"ids": Range(0, 51), "rows": Range(-4, 4)}
    with pytest.raises(QuantizationError, match=r"ids was calibrated on \[0, 51\], .* integers in \[0, 50\]"):
        expand_graph(embedding(), ranges, mrt.QuantizationConfig(inputs={"ids": IDS}))
    expand_graph(embedding(), ranges | {"ids": Range(0, 50)}, mrt.QuantizationConfig(inputs={"ids": IDS}))


def test_an_input_of_integers_stands_for_itself() -> None:
    with pytest.raises(ConfigError, match="scale 1 and zero_point 0 are needed"):
        quantized(embedding(), [np.array([[0, 1, 2, 3]])], ids={**IDS, "scale": 0.5})


def test_integers_calibrate_as_the_real_values_that_they_stand_for() -> None:
    x, graph = images(), convolution()
    real = (x.astype(np.float64) - 128) / 127.5
    models = [quantized(graph, [data], x=PIXELS) for data in (x, x.astype(np.int64), real, real.astype(np.float32))]
    assert len({model.digest for model in models}) == 1
    with pytest.raises(DataError, match="calibration batch 0: input x holds real values"):
        quantized(graph, [x.astype(np.float32)], x=PIXELS)


def test_integers_in_other_units_are_refused() -> None:
    model = quantized(convolution(), [images() / 127.5 - 1])
    module = model.compile()
    for call in (model.quantize_inputs, module):
        for dtype in (np.uint8, np.int64):
            with pytest.raises(DataError, match=r"x is u?int\d+ in \[.*calibration saw .*quantize.inputs"):
                call(images().astype(dtype))
        call(images() > 99)
        call((images() > 99).astype(np.int64))
        call(images().astype(np.float32))  # real values beyond the range saturate


def test_integers_that_calibrated_are_taken_and_noted() -> None:
    model = quantized(convolution(), [images() // 2])
    assert any("input x was calibrated on uint8" in note for note in model.notes)
    model.quantize_inputs(images())
    for quiet in (images() / 255, (images() > 9).astype(np.int64)):
        assert not quantized(convolution(), [quiet]).notes


WRONG_BATCHES: list[tuple[Any, str]] = [
    (5, r"batches is 5 \(int\)"),
    ("images", r"batches is 'images' \(str\)"),
    (object(), "batches is <object"),
    ([(images(), np.arange(4), 5)], "calibration batch 0 is a tuple of 3 parts; one for each of the inputs"),
    ([[np.arange(4), images()]], "rank 1|shape"),
    ([images(), None], "calibration batch 1 is a NoneType"),
    (["images"], "calibration batch 0 is a str"),
    ([[[1, 2], [3]]], "calibration batch 0: input x is a list that is no array"),
    ([images().astype(object)], "input x is object"),
    ([{5: images()}], r"inputs \['5'\] are given, \['x'\] are needed"),
    ([images()[:0]], "no samples"),
    ([], "no samples"),
    (iter(()), "no samples"),
    ({}, "are needed"),
    ([5], "rank 0"),
]


@pytest.mark.parametrize(("batches", "told"), WRONG_BATCHES, ids=range(len(WRONG_BATCHES)))
def test_what_is_no_calibration_data_is_named(batches: Any, told: str) -> None:
    with pytest.raises(DataError, match=told):
        quantized(convolution(), batches)


def test_tensors_of_other_libraries_are_arrays() -> None:
    class Tensor:
        def __init__(self, values: np.ndarray) -> None:
            self.values = values

        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            if self.values.dtype.kind == "c":
                raise RuntimeError("call detach first")
            return self.values.astype(dtype or self.values.dtype)

    x, graph = (images() / 255).astype(np.float32), convolution()
    expected = quantized(graph, [x])
    assert quantized(graph, Tensor(x)).digest == quantized(graph, [Tensor(x)]).digest == expected.digest
    np.testing.assert_array_equal(expected.quantize_inputs(Tensor(x))["x"], expected.quantize_inputs(x)["x"])
    with pytest.raises(DataError, match="no array: call detach first"):
        quantized(graph, [Tensor(x.astype(complex))])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"graph": 5}, "graph is 5"),
        ({"quantization": {}}, "quantization is {}; an mrt.QuantizationConfig"),
        ({"calibration": 5}, "calibration is 5"),
        ({"preparation": "x"}, "preparation is 'x'"),
        ({"runner": 5}, "runner is 5"),
        ({"progress": 5}, "progress is 5"),
    ],
)
def test_arguments_of_another_kind_are_named(options: dict[str, Any], told: str) -> None:
    with pytest.raises(mrt.MRTError, match=told):
        mrt.quantize(**{"graph": convolution(), "batches": images() / 255, **options})


def test_a_tensor_that_is_not_given_clips_as_before() -> None:
    entry = replace(given("int8", -127, 127, 0.5), is_given=False)
    assert entry.quantize(np.array([[1e30], [-np.inf], [0.75], [200]])).tolist() == [[127], [-127], [2], [127]]


def test_a_run_tells_of_integers_and_holds_them_against_what_is_declared(tmp_path: Path) -> None:
    """Also where the range is declared after calibration."""
    node = helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)
    w = numpy_helper.from_array(RNG.standard_normal((2, 8)).astype(np.float32), "w")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, n]) for name, n in (("x", 8), ("y", 2))]
    proto = helper.make_graph([node], "net", values[:1], values[1:], [w])
    onnx.save(
        helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "net.onnx"
    )
    np.savez(tmp_path / "data.npz", x=np.arange(80, dtype=np.uint8).reshape(10, 8))
    (tmp_path / "config.yaml").write_text(
        "model: {path: net.onnx}\ndata: {calibration: {npz: data.npz}}\noutput: out\n"
    )

    def told(*overrides: str, **options: str) -> str:
        written = StringIO()
        config = load_config(tmp_path / "config.yaml", overrides)
        run_pipeline(config, last="quantize", report=Reporter(Console(file=written)), **options)
        return written.getvalue()

    assert "calibrate: input x was calibrated on uint8" in told()
    assert "calibrated on" not in told("data.calibration.scale=0.5")
    assert "calibrated on" not in told("quantize.inputs.x={dtype: uint8, range: [0, 79]}")
    for options, error in (({"first": "quantize"}, QuantizationError), ({"first": "calibrate"}, DataError)):
        with pytest.raises(error, match=r"input x .*\[0, 78\]"):
            told("quantize.inputs.x={dtype: uint8, range: [0, 78]}", **options)

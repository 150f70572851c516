"""Relay texts that TVM 0.17 printed, with what TVM computed: networks and functions of one operator or a few."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from mrt.backend import TvmRunner
from mrt.errors import GraphError, MRTError, UnsupportedOperatorError
from mrt.frontend import load_model
from mrt.frontend.relay import from_relay, read_relay_file
from mrt.frontend.relay.declarations import DECLARATIONS, REQUIRED
from mrt.frontend.relay.tensors import read_parameters
from mrt.symbol import Array, Graph

Run = Callable[[Mapping[str, Array]], Sequence[Array]]

NETWORKS = [
    *("cifar_resnet20_v1", "cifar_resnet20_v1_folded", "kws_dscnn", "kws_dscnn_folded", "kws_dscnn_relayquant", "kwt1"),
    *(
        "lenet_toy",
        "mlperf_resnet8",
        "mlperf_resnet8_folded",
        "mobilenet_v1_0.25_224",
        "mtcnn_det1",
        "resnet20_cifar10",
    ),
    "resnet20_cifar10_frozen",
]
FUNCTIONS = [
    *("attention_block", "avg_pool2d_combos", "batch_norm_noscale_axis", "batch_norm_proj", "broadcast_consts"),
    *("casts_compare", "clip_leaky_prelu", "const_output_and_unused_arg", "conv1d", "conv2d_asym_pad"),
    *("conv2d_depthwise", "conv2d_dilated", "conv2d_groups", "conv2d_nhwc", "conv2d_transpose"),
    *("conv2d_transpose_groups", "dag_sharing", "dense_add_flatten", "dense_bias", "empty_and_single_tuple"),
    *("function_attrs", "fused_primitive_fn", "global_functions", "global_pools", "hard_swish_mbv3", "if_else"),
    *("int_conv2d", "int_dense_pool_misc", "int_fixed_point_multiply", "int_fixed_point_multiply_per_axis"),
    *("int_shifts", "let_binding", "let_typed_conv", "like_and_fill_ops", "local_fn_tuple_arg", "lrn", "matmuls"),
    *("max_pool2d_ceil", "norm_ops", "pad_constant", "pad_edge_reflect", "qnn_conv2d", "qnn_conv2d_canonical"),
    *("qnn_conv2d_perchannel_dw", "qnn_conv2d_perchannel_dw_canonical", "qnn_dense_add_concat_mul"),
    *("qnn_dense_add_concat_mul_canonical", "qnn_quantize_dequantize", "qnn_quantize_dequantize_canonical"),
    *("qnn_requantize", "qnn_requantize_canonical", "reduce_ops", "reshape_codes", "scalar_literals", "shape_ops"),
    *("softmax_ops", "space_depth", "split_ops", "strided_slice", "take_embed", "tuple_concat", "tuple_out"),
    *("unary_ops", "upsampling_resize", "weird_names"),
]
REFUSED = {"if_else": r"if ×1 \(if in line 5\)"}
"""Functions that no graph can hold, and what is said of them."""
COMPILED = [*(name for name in FUNCTIONS if name.startswith(("int_", "qnn_"))), "casts_compare", "unary_ops"]
"""Functions that are compiled, too: those of integers, and of what floats have beside arithmetic."""
HALF = 2.0**-10
"""The precision of float16, in which Relay computes what the graph has in float32."""


@pytest.fixture(scope="session")
def relay_folder(data_folder: Path) -> Path:
    folder = data_folder / "relay"
    if not folder.is_dir():
        pytest.skip("Relay texts are absent: MRT_DATA has no folder relay")
    return folder


def check(graph: Graph, folder: Path, places: dict[int, int], tolerance: float, run: Run | None = None) -> None:
    """Each output of the graph against the one of TVM at its place, sample by sample, integers exactly."""
    text = (folder / "model.relay").read_text()
    with np.load(folder / "io.npz") as arrays:
        samples = len(next(iter(arrays.values())))
        for sample in range(samples):
            feeds = {symbol.name: arrays[f"in_{symbol.name}"][sample] for symbol in graph.inputs}
            outputs = (run or graph.evaluate)(feeds)
            assert len(outputs) == len(places)
            for own, place in places.items():
                expected = arrays[f"out_{place}"][sample]
                assert outputs[own].shape == expected.shape
                bound = {"i": 0.0, "u": 0.0, "b": 0.0}.get(expected.dtype.kind, tolerance)
                bound = max(bound, HALF) if bound and depends_on_halves(text, place) else bound
                np.testing.assert_allclose(outputs[own].astype("f8"), expected.astype("f8"), rtol=bound, atol=bound)


@pytest.mark.parametrize("name", NETWORKS)
def test_network(relay_folder: Path, name: str) -> None:
    graph = load_model(relay_folder / name / "model.relay")
    assert len(graph.inputs) == 1
    check(graph, relay_folder / name, {place: place for place in range(len(graph.outputs))}, 1e-5)


def depends_on_halves(text: str, place: int) -> bool:
    """Whether an output of a function is computed of float16: the lines of the text are followed from it."""
    if "float16" not in text:
        return False
    lines = dict(re.findall(r"^  (%\d+) = (.*);$", text, re.MULTILINE))
    (result,) = re.findall(r"^  \((.*?)\) /\*.*\n}", text, re.MULTILINE)
    pending, seen = [re.findall(r"%\w+", result)[place]], ""
    while pending:
        line = lines.get(pending.pop(), "")
        seen += line
        pending += re.findall(r"%\d+", line)
    return "float16" in seen


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(relay_folder: Path, name: str) -> None:
    folder = relay_folder / "ops" / name
    if name in REFUSED:
        with pytest.raises(UnsupportedOperatorError, match=REFUSED[name]):
            read_relay_file(folder / "model.relay")
        return
    graph = read_relay_file(folder / "model.relay")
    check(graph, folder, {place: place for place in range(len(graph.outputs))}, 2e-6)


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_function(relay_folder: Path, name: str) -> None:
    folder = relay_folder / "ops" / name
    graph = read_relay_file(folder / "model.relay")
    check(graph, folder, {place: place for place in range(len(graph.outputs))}, 2e-6, TvmRunner().prepare(graph))


def test_a_dynamic_text_is_static_with_its_constants(relay_folder: Path) -> None:
    """Slices and pads by tensors, of an untouched import: given the values of all arguments nothing is dynamic."""
    folder, static = relay_folder / "resnet20_cifar10_dynamic", relay_folder / "resnet20_cifar10"
    weights = {**read_parameters(static / "model.params"), **read_parameters(folder / "model.params")}
    graph = from_relay((folder / "model.relay").read_text(), weights)
    assert graph.count_operators() == read_relay_file(static / "model.relay").count_operators()
    check(graph, static, {0: 0}, 1e-5)


def test_a_dynamic_text_is_refused(relay_folder: Path) -> None:
    with pytest.raises(GraphError, match="input linear.weight has the dynamic axis 1 "):
        read_relay_file(relay_folder / "resnet20_cifar10_dynamic" / "model.relay")


def test_repeated_names_are_two_arguments(relay_folder: Path) -> None:
    graph = read_relay_file(relay_folder / "ops" / "duplicate_names" / "model.relay")
    assert [symbol.name for symbol in graph.inputs] == ["x", "w", "w1"]


def test_parameter_files_of_every_dtype(relay_folder: Path) -> None:
    folder = relay_folder / "params_variety"
    found = read_parameters(folder / "all.params")
    with np.load(folder / "expected.npz") as expected:
        # The names of npz members have a backslash for each slash.
        assert {name.replace("/", "\\") for name in found} == set(expected.files)
        for name, array in found.items():
            like = expected[name.replace("/", "\\")]
            np.testing.assert_array_equal(array, like)
            assert (array.dtype, array.shape) == (like.dtype, like.shape)
    assert read_parameters(folder / "empty.params") == {}
    (one,) = read_parameters(folder / "relay_save_param_dict.params").items()
    assert (one[0], one[1].dtype, one[1].shape) == ("w", np.float32, (2, 3))


def test_declarations_are_those_of_tvm(relay_folder: Path) -> None:
    """Number of inputs, attributes and defaults, against what TVM itself tells of its operators."""
    told = json.loads((relay_folder / "op_attrs.json").read_text())
    compared = 0
    for name, facts in told.items():
        declaration = DECLARATIONS.get(name)
        if declaration is None or name == "fixed_point_multiply_per_axis":
            continue
        compared += 1
        assert declaration.inputs == facts["num_inputs"], name
        fields = dict(facts["fields"])
        assert set(declaration.attributes) == set(fields), name
        for field, kind in fields.items():
            default = re.search(r"default=(.*)", kind, re.DOTALL)
            stated = declaration.attributes[field]
            if default is None:
                assert stated == REQUIRED, (name, field)
            else:
                assert shown(stated, kind) == default[1], (name, field)
    assert compared > 80


def shown(value: object, kind: str) -> str:
    """A default as TVM tells it."""
    if value is None:
        return "(nullptr)"
    if kind.startswith("DataType"):
        return "void" if value == "" else str(value)
    if isinstance(value, bool):
        return str(int(value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def test_errors_of_real_texts_that_end_early(relay_folder: Path) -> None:
    text = (relay_folder / "mlperf_resnet8_folded" / "model.relay").read_text()
    for length in np.linspace(0, len(text) - 10, 40).astype(int):
        with pytest.raises(MRTError):
            from_relay(text[:length])

"""The backend node tests of the ONNX package: every one whose operators are read passes, or stands in a table here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx_models import run_onnxruntime

from mrt.errors import MRTError
from mrt.frontend.onnx import from_onnx
from mrt.frontend.onnx.constants import ALWAYS_KNOWN, FOLDABLE
from mrt.frontend.onnx.node import covered_operators
from mrt.frontend.onnx.reader import OPSETS

PARAMETERS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(
        ("Reshape", "Tile", "Expand", "Squeeze", "Unsqueeze", "CumSum", "CastLike", "Trilu", "Split", "Upsample"), (1,)
    ),
    **{
        f"Reduce{kind}": (1,)
        for kind in ("Sum", "Mean", "Max", "Min", "L1", "L2", "SumSquare", "LogSum", "LogSumExp", "Prod")
    },
    "Slice": (1, 2, 3, 4),
    "Pad": (1, 2, 3),
    "Resize": (1, 2, 3),
    "OneHot": (1, 2),
    **dict.fromkeys(("GatherElements", "GatherND", "Scatter", "ScatterElements", "ScatterND"), (1,)),
    "Dropout": (1, 2),
    "Pow": (1,),
    "PRelu": (1,),
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "BatchNormalization": (1, 2, 3, 4),
    "InstanceNormalization": (1, 2),
    "LayerNormalization": (1, 2),
    "GroupNormalization": (1, 2),
    "CenterCropPad": (1,),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), (1, 2)),
    **dict.fromkeys(("ConvInteger", "MatMulInteger"), (1, 2, 3)),
    **dict.fromkeys(("QLinearConv", "QLinearMatMul"), (1, 2, 3, 4, 5, 6, 7, 8)),
}
"""Inputs that are constants in trained networks; the tests feed all of them."""

_TYPES = r"UINT16|UINT32|UINT64|U?INT4|FLOAT8\w+|STRING|uint\d+|int4|float8\w+"
NO_GRAPH_TYPE = rf"(is|has dtype) ({_TYPES})[; ].*(signed integer|floats of 16 to 64 bits)"
EMPTY = r"dynamic axis 1 |input x has shape \(0, 5\)|does not fit the target shape \(3, 4, 0\)|is empty"

REFUSALS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "the graph has no such integers, floats of 8 or 4 bits, or text": (
        NO_GRAPH_TYPE,
        (
            *(f"test_{name}_uint{bits}" for name in ("add", "sub", "mul", "max", "min") for bits in (16, 32, 64)),
            *(f"test_{name}_uint{bits}" for name in ("div", "equal", "greater", "less") for bits in (16, 32, 64)),
            *(f"test_{name}_equal_uint{bits}*" for name in ("greater", "less") for bits in (16, 32, 64)),
            *("test_equal_string", "test_equal_string_broadcast"),
            *("test_cast_FLOAT8*", "test_cast_INT4*", "test_cast_UINT4*", "test_cast*_FLOAT*_to_FLOAT8*"),
            *("test_cast_FLOAT*_to_INT4", "test_cast_FLOAT*_to_UINT4"),
            *("test_castlike_FLOAT8*", "test_castlike_INT4*", "test_castlike_UINT4*", "test_castlike*_to_FLOAT8*"),
            *("test_castlike_FLOAT*_to_INT4*", "test_castlike_FLOAT*_to_UINT4*"),
            *("test_mod_uint16", "test_mod_uint32", "test_mod_uint64"),
            *("test_dequantizelinear_e?m*", "test_dequantizelinear_u*", "test_dequantizelinear_int4"),
        ),
    ),
    "tensors without elements": (
        EMPTY,
        (
            "test_reduce_*_empty_set*",
            "test_tril_zero",
            "test_triu_zero",
            "test_reshape_allowzero_reordered",
            "test_slice_start_out_of_bounds",
        ),
    ),
    "parts without elements": (
        r"into \((0, 0, 0|8, 0)\) for",
        (
            "test_split_zero_size_splits_opset*",
            "test_rotary_embedding_expanded",
            "test_rotary_embedding_3d_input_expanded",
            "test_rotary_embedding_interleaved_expanded",
            "test_rotary_embedding_no_position_ids_expanded",
            "test_rotary_embedding_no_position_ids_interleaved_expanded",
        ),
    ),
    "optional values are no tensors": (
        "is no tensor; only tensors are read",
        ("test_identity_opt",),
    ),
    "training": (
        "which is inference, is needed",
        ("test_batchnorm_*_training_mode", "test_training_dropout*"),
    ),
    "division by negative integers": ("the divisor holds -2; 1 or more is needed", ("test_div_int32_trunc",)),
    "a power with an exponent for each element": (
        "input exponent is of shape",
        ("test_pow", "test_pow_example", "test_pow_bcast_array", "test_pow_types_*"),
    ),
    "quantization to floats": (
        "the integers' type is float8",
        ("test_quantizelinear_e4m3fn", "test_quantizelinear_e5m2"),
    ),
    "elements added to, or multiplied by, what is put there": (
        "attribute reduction is (add|mul|max|min); none is needed",
        ("test_scatter_elements_with_*duplicate*", "test_scatter_elements_with_reduction_*", "test_scatternd_*"),
    ),
    "elements at places that the data decide": (
        "GatherElements.*input indices is computed from the data",
        ("test_nllloss_*_expanded",),
    ),
    "a scale for each block": ("attribute block_size is 2", ("test_*quantizelinear_blocked*",)),
    "scales that the data decide": (
        "computed from the data",
        ("test_dynamicquantizelinear*",),
    ),
    "a diagonal": ("with a letter twice", ("test_einsum_batch_diagonal",)),
    "the places of maxima in windows": ("output z is used", ("test_maxpool_with_argmax_2d_precomputed_*",)),
}
"""What is refused: by reason the words of the error, and the tests."""

AS_ONNX_RUNTIME = frozenset(
    {"test_resize_downsample_scales_linear_align_corners", "test_resize_downsample_scales_cubic_align_corners"}
)
"""Where ONNX Runtime counts the length of the result in whole elements and the package's expected output does not."""


@dataclass(frozen=True)
class Case:
    """One backend test: a model of an opset that is read, what is fed, and what is expected."""

    name: str
    operator: str
    model: onnx.ModelProto
    feeds: Mapping[str, np.ndarray]
    expected: tuple[np.ndarray, ...]


@cache
def cases() -> dict[str, list[Case]]:
    """The tests of models whose operators are all read, by the operator that they are of."""
    found: dict[str, list[Case]] = {}
    readable = covered_operators() | FOLDABLE | ALWAYS_KNOWN
    before = np.random.get_state()
    np.random.seed(0)  # the package draws from it: the same values every time
    with np.errstate(all="ignore"):
        collected = collect_testcases(None)
    np.random.set_state(before)
    nodes = {test.name: test.model.graph.node[0] for test in collected if "_expanded" not in test.name}
    for test in collected:
        node = nodes[test.name.partition("_expanded")[0]]
        is_read = all(item.domain in ("", "ai.onnx") and item.op_type in readable for item in test.model.graph.node)
        model = in_opsets(test.model) if is_read else None
        if model is None:
            continue
        inputs, outputs = (tuple(map(array, values)) for values in test.data_sets[0])
        feeds = dict(zip((value.name for value in model.graph.input), inputs, strict=False))
        # An operator that is read on constants alone is given nothing else.
        is_folded = any(item.op_type not in covered_operators() for item in test.model.graph.node)
        places = range(len(node.input)) if is_folded else PARAMETERS.get(node.op_type, ())
        for name in [node.input[place] for place in places if place < len(node.input)]:
            if name in feeds:
                model.graph.initializer.append(numpy_helper.from_array(feeds.pop(name), name))
        found.setdefault(node.op_type, []).append(Case(test.name, node.op_type, model, feeds, outputs))
    return found


def array(value: object) -> np.ndarray:
    """The values of an input or output, of which some tests hold the tensor; of a sequence, none."""
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    return np.zeros(0) if isinstance(value, list) or value is None else np.asarray(value)


def in_opsets(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """The model in the nearest opset that is read, None where that has not what it uses.

    The tests are of the opset in which their operator changed last; one before opset 9 is the same in that.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    (entry,) = (entry for entry in copy.opset_import if entry.domain in ("", "ai.onnx"))
    if entry.version in OPSETS:
        return copy
    entry.version = min(max(entry.version, OPSETS[0]), OPSETS[-1])
    unshaped = onnx.ModelProto()
    unshaped.CopyFrom(copy)
    for output in unshaped.graph.output:
        # Shapes that older opsets infer otherwise are no reason: what is computed is compared.
        output.type.tensor_type.ClearField("shape")
    try:
        onnx.checker.check_model(copy)
        onnx.shape_inference.infer_shapes(unshaped, check_type=True, strict_mode=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return None
    return copy


def refusal_of(name: str) -> str | None:
    """The words of the error that a test is expected to end in, None where it shall pass."""
    found = [words for words, names in REFUSALS.values() if any(fnmatchcase(name, pattern) for pattern in names)]
    assert len(found) < 2, f"{name} stands in the table twice"
    return found[0] if found else None


def outcome(case: Case) -> str:
    """ "" where a test ends as it shall, else what is wrong."""
    words = refusal_of(case.name)
    try:
        graph = from_onnx(case.model)
        inputs = {symbol.name for symbol in graph.inputs}
        found = graph.evaluate({name: value for name, value in case.feeds.items() if name in inputs})
    except MRTError as error:
        return "" if words and re.search(words, str(error)) else f"{case.name} is refused: {error}"
    if words:
        return f"{case.name} stands among the refusals and is read"
    expected = case.expected
    if case.name in AS_ONNX_RUNTIME:
        expected = tuple(run_onnxruntime(case.model, case.feeds))
    return difference(case.name, found, expected)


def difference(name: str, found: list[np.ndarray], expected: tuple[np.ndarray, ...]) -> str:
    """How outputs differ from the expected ones; truth values and integers count as the numbers that they are."""
    if len(found) != len(expected):
        return f"{name} has {len(found)} outputs, {len(expected)} are expected"
    for got, wanted in zip(found, expected, strict=True):
        if got.shape != wanted.shape:
            return f"{name} gives shape {got.shape}, {wanted.shape} is expected"
        # Half of what float16 and bfloat16 keep; the graph has float32 for both.
        rough = {"float16": 2e-3, "bfloat16": 1e-2}.get(wanted.dtype.name, 1e-3)
        wide = wanted.astype(np.float64)
        if not np.allclose(got.astype(np.float64), wide, rtol=rough, atol=rough / 1000, equal_nan=True):
            return f"{name} is off by {np.nanmax(np.abs(got - wide))}"
    return ""


@pytest.mark.parametrize("operator", sorted(covered_operators() | FOLDABLE))
def test_an_operator(operator: str) -> None:
    """Every test of the operator passes or is refused as the table says."""
    assert [text for text in map(outcome, cases().get(operator, [])) if text] == []


def test_functions_made_of_operators() -> None:
    """Operators that are not read themselves, but are functions of such that are: Attention, RMSNormalization, …"""
    others = [case for name, some in cases().items() if name not in covered_operators() | FOLDABLE for case in some]
    assert {case.operator for case in others} >= {"Attention", "RMSNormalization", "CenterCropPad"}
    assert [text for text in map(outcome, others) if text] == []


def test_nothing_is_left_out() -> None:
    """Most tests of the package are of operators that are read, every operator has one, and the table has no test too
    many.
    """
    every = [case for some in cases().values() for case in some]
    assert len(every) > 1200
    assert sum(refusal_of(case.name) is None for case in every) > 1000
    assert covered_operators() - set(cases()) == {"GlobalLpPool"}  # which the package has no test of
    patterns = [pattern for _, names in REFUSALS.values() for pattern in names]
    assert [p for p in patterns if not any(fnmatchcase(case.name, p) for case in every)] == []
    assert {case.name for case in every} >= AS_ONNX_RUNTIME


def test_models_of_no_opset_are_told_apart() -> None:
    """What is left out for its opset is so for a type or attribute that opset 21 does not have."""
    node = helper.make_node("SpaceToDepth", ["x"], ["y"], blocksize=2, mode="CRD")
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 1, 2, 2))
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4, 1, 1))
    newer = helper.make_model(
        helper.make_graph([node], "g", [value], [result]), opset_imports=[helper.make_opsetid("", 28)]
    )
    assert in_opsets(newer) is None
    del newer.graph.node[0].attribute[1]
    older = in_opsets(newer)
    assert older is not None and older.opset_import[0].version == 21

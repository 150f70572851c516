"""The backend node tests of the ONNX package, run through the reader: what passes, is refused, or fails.

python -m tests.onnx_node_tests > docs/onnx_operators.md
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import cache
from unittest import mock

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases

from mrt.errors import MRTError
from mrt.frontend.onnx import from_onnx
from mrt.frontend.onnx.constants import FOLDABLE
from mrt.frontend.onnx.node import covered_operators
from mrt.frontend.onnx.reader import OPSETS

PARAMETERS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(
        (
            "Reshape",
            "Tile",
            "Expand",
            "Squeeze",
            "Unsqueeze",
            "CumProd",
            "CumSum",
            "CastLike",
            "Trilu",
            "Split",
            "Upsample",
        ),
        (1,),
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
    **dict.fromkeys(("Mod", "Pow"), (1,)),
    "PRelu": (1,),
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "BatchNormalization": (1, 2, 3, 4),
    "InstanceNormalization": (1, 2),
    "LayerNormalization": (1, 2),
    "GroupNormalization": (1, 2),
    "RMSNormalization": (1,),
    "RotaryEmbedding": (3,),
    "AffineGrid": (1,),
    "GridSample": (1,),
    "TopK": (1,),
    **dict.fromkeys(("Col2Im", "DFT"), (1, 2)),
    "STFT": (1, 2, 3),
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), (0,)),
    "CenterCropPad": (1,),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), (1, 2)),
    **dict.fromkeys(("ConvInteger", "MatMulInteger"), (1, 2, 3)),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), (1, 2, 3, 4, 7)),
    **dict.fromkeys(("QLinearConv", "QLinearMatMul"), (1, 2, 3, 4, 5, 6, 7, 8)),
}
"""Inputs that are constants in trained networks; the tests feed all of them."""

PASSED, REFUSED, FAILED = "passed", "refused", "failed"


@dataclass(frozen=True)
class Case:
    """One backend test: a model, what is fed, and what is expected."""

    name: str
    operator: str
    model: onnx.ModelProto
    feeds: Mapping[str, np.ndarray]
    expected: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Outcome:
    """How a test ended, and what the error or the difference says."""

    case: Case
    kind: str
    words: str


@cache
def cases() -> tuple[Case, ...]:
    """Every test of the package, with the operator that it is of."""
    before = np.random.get_state()
    np.random.seed(0)  # the package draws from it: the same values every time
    with (
        np.errstate(all="ignore"),
        mock.patch.object(np.random, "randn", _drawn(np.random.randn)),
        mock.patch(EXCERPTS, return_value=("", ""), create=True),  # other versions may lack it
    ):
        collected = collect_testcases(None)
    np.random.set_state(before)
    nodes = {test.name: test.model.graph.node[0] for test in collected if "_expanded" not in test.name}
    alone = FOLDABLE - covered_operators()
    return tuple(_case(test, nodes[test.name.partition("_expanded")[0]], alone) for test in collected)


EXCERPTS = "onnx.backend.test.case.base.process_snippet"
"""What finds the source of each test for the package's documents, which takes a third of the time."""
VOLUME = (1, 3, 32, 32, 32)
"""What three tests pool, whose windows the package computes one after the other."""


def _drawn(randn: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """NumPy's function, which gives a smaller volume for that one: all of its windows are of one form."""

    def drawn(*shape: int) -> np.ndarray:
        return randn(1, 3, 7, 8, 9) if shape == VOLUME else randn(*shape)

    return drawn


def _case(test: object, node: onnx.NodeProto, alone: Set[str]) -> Case:
    """alone: the operators that are read on constants alone, and are given nothing else."""
    model = in_opsets(test.model)
    inputs, outputs = (tuple(map(array, values)) for values in test.data_sets[0])
    feeds = dict(zip((value.name for value in model.graph.input), inputs, strict=False))
    is_folded = any(item.op_type in alone for item in test.model.graph.node)
    places = range(len(node.input)) if is_folded else PARAMETERS.get(node.op_type, ())
    for name in [node.input[place] for place in places if place < len(node.input)]:
        if name in feeds and feeds[name].dtype.kind in "biufc":
            model.graph.initializer.append(numpy_helper.from_array(feeds.pop(name), name))
    return Case(test.name, node.op_type, model, feeds, outputs)


def array(value: object) -> np.ndarray:
    """The values of an input or output, of which some tests hold the tensor; of a sequence, none."""
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    return np.zeros(0) if isinstance(value, list) or value is None else np.asarray(value)


def in_opsets(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in the nearest opset that is read, or as it is where that has not what it uses.

    The tests are of the opset in which their operator changed last; one before opset 9 is the same in that.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    entry = next((entry for entry in copy.opset_import if entry.domain in ("", "ai.onnx")), None)
    if entry is None or entry.version in OPSETS:
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
        copy.CopyFrom(model)
    return copy


AS_ONNX_RUNTIME = frozenset(
    {"test_resize_downsample_scales_linear_align_corners", "test_resize_downsample_scales_cubic_align_corners"}
)
"""Where ONNX Runtime counts the length of the result in whole elements and the package's expected output does not."""


@cache
def outcomes() -> tuple[Outcome, ...]:
    """How every test ends."""
    return tuple(map(_outcome, cases()))


def _outcome(case: Case) -> Outcome:
    try:
        with np.errstate(all="ignore"):
            graph = from_onnx(case.model)
            names = {symbol.name for symbol in graph.inputs}
            found = graph.evaluate({name: value for name, value in case.feeds.items() if name in names})
    except MRTError as error:
        return Outcome(case, REFUSED, str(error))
    except Exception as error:  # whatever else is raised is a failure of the reader
        return Outcome(case, FAILED, repr(error))
    words = difference(found, _expected(case))
    return Outcome(case, FAILED if words else PASSED, words)


def _expected(case: Case) -> tuple[np.ndarray, ...]:
    if case.name not in AS_ONNX_RUNTIME:
        return case.expected
    import onnxruntime

    session = onnxruntime.InferenceSession(case.model.SerializeToString(), providers=["CPUExecutionProvider"])
    return tuple(session.run(None, dict(case.feeds)))


def difference(found: list[np.ndarray], expected: tuple[np.ndarray, ...]) -> str:
    """How outputs differ from the expected ones; truth values and integers count as the numbers that they are."""
    if len(found) != len(expected):
        return f"{len(found)} outputs, {len(expected)} are expected"
    for got, wanted in zip(found, expected, strict=True):
        if got.shape != wanted.shape:
            return f"shape {got.shape}, {wanted.shape} is expected"
        # Half of what float16 and bfloat16 keep; the graph has float32 for both.
        rough = {"float16": 2e-3, "bfloat16": 1e-2}.get(wanted.dtype.name, 1e-3)
        wide = wanted.astype(np.float64)
        with np.errstate(all="ignore"):
            if not np.allclose(got.astype(np.float64), wide, rtol=rough, atol=rough / 1000, equal_nan=True):
                return f"off by {np.nanmax(np.abs(got - wide))}"
    return ""


_HEAD = """# ONNX operators, test by test

ONNX {version} brings tests for its operators: a model of one node, or of the operators that it stands for, with inputs
and outputs. Each is read and evaluated in float. It passes where the outputs are the expected ones, and is refused
where one error says what is not covered; a wrong result, or any other error, is a failure.

{passed} pass, {refused} are refused, {failed} fail. Inputs that trained networks hold as constants, such as axes and
weights, are constants here. `python -m tests.onnx_node_tests > docs/onnx_operators.md` writes this page.

| operator | pass | refused | fail | what most of the refused say |
|---|---|---|---|---|
"""
_LONGEST = 100


def page() -> str:
    """The page of the documentation."""
    total = Counter(outcome.kind for outcome in outcomes())
    counts = {kind: total[kind] for kind in (PASSED, REFUSED, FAILED)}
    return _HEAD.format(version=onnx.__version__, **counts) + "".join(_row(name) for name in sorted(_by_operator()))


@cache
def _by_operator() -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = {}
    for outcome in outcomes():
        found.setdefault(outcome.case.operator, []).append(outcome)
    return found


def _row(operator: str) -> str:
    ended = _by_operator()[operator]
    counts = Counter(outcome.kind for outcome in ended)
    words = Counter(_reason(outcome.words) for outcome in ended if outcome.kind == REFUSED)
    most = words.most_common(1)[0][0] if words else ""
    return f"| {operator} | {counts[PASSED]} | {counts[REFUSED]} | {counts[FAILED]} | {most} |\n"


def _reason(words: str) -> str:
    """An error without the names of the model, cut to what fits a table."""
    if " not covered: " in words:
        return "not covered: " + ", ".join(
            sorted(part.split()[0] for part in words.split(" not covered: ")[1].split("; ")[:-1])
        )
    said = words.partition("): ")[2] or words
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST].rpartition(' ')[0]} …"


if __name__ == "__main__":
    sys.stdout.write(page())

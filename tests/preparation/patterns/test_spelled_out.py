"""Spelled-out normalisations and softmaxes become operators that give what ONNX Runtime gives for the spelling."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

from mrt.frontend.onnx import from_onnx
from mrt.preparation import PreparationConfig, Prepared, prepare
from mrt.preparation.patterns import SpelledOut
from mrt.symbol import Graph

ort = pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(5)
G, B = "0.5, 1.5, -1.0, 2.0, 1.0, 0.75", "0.1, -0.2, 0.3, 0.0, 1.0, -1.0"
VECTORS = f"float[6] g = {{{G}}}, float[6] b = {{{B}}}"


def spelled(shape: str, lines: str, constants: str = "") -> onnx.ModelProto:
    """A model of opset 13 that computes y of x."""
    given = f"<{constants}>" if constants else ""
    text = f"""<ir_version: 8, opset_import: ["" : 13]>
    main (float[{shape}] x) => (float y) {given} {{
    {lines}
    }}"""
    return onnx.parser.parse_model(text)


def numbers(**values: float) -> str:
    return ", ".join(f"float {name} = {{{value}}}" for name, value in values.items())


MEAN = "m = ReduceMean<axes=[{axes}]>(x)\n d = Sub(x, m)\n"
OF_Z = "m = ReduceMean<axes=[{axes}]>(z)\n d = Sub(z, m)\n"
POWER = "q = Pow(d, two)\n v = ReduceMean<axes=[{axes}]>(q)\n"
SQUARE = "q = Mul(d, d)\n v = ReduceMean<axes=[{axes}]>(q)\n"
SQRT = "e = Add(v, eps)\n s = Sqrt(e)\n"
INVERSE = "e = Add(eps, v)\n s = Sqrt(e)\n r = Reciprocal(s)\n"
POW = "e = Add(v, eps)\n r = Pow(e, minushalf)\n"
N = numbers(two=2, eps=1e-5, minushalf=-0.5)
AFFINE = "a = Mul(n, g)\n y = Add(a, b)"

CASES = {
    "layer norm as PyTorch writes it": ("2,5,6", MEAN + POWER + SQRT + "n = Div(d, s)\n" + AFFINE, "2", "LayerNorm"),
    "squares as products, inverse": ("2,5,6", MEAN + SQUARE + INVERSE + "n = Mul(r, d)\n" + AFFINE, "-1", "LayerNorm"),
    "power of -0.5, scale first": (
        "2,5,6",
        MEAN + SQUARE + POW + "h = Mul(r, g)\n a = Mul(d, h)\n y = Add(b, a)",
        "2",
        "LayerNorm",
    ),
    "as TensorFlow writes it": (
        "2,5,6",
        MEAN + SQUARE + POW + "h = Mul(r, g)\n p = Mul(x, h)\n k = Mul(m, h)\n o = Sub(b, k)\n y = Add(p, o)",
        "2",
        "LayerNorm",
    ),
    "variance as a difference of means": (
        "2,5,6",
        "m = ReduceMean<axes=[{axes}]>(x)\n q = Mul(x, x)\n p = ReduceMean<axes=[{axes}]>(q)\n o = Mul(m, m)\n"
        " v = Sub(p, o)\n d = Sub(x, m)\n" + SQRT + "n = Div(d, s)\n" + AFFINE,
        "2",
        "LayerNorm",
    ),
    "that held to 0, in the form of TensorFlow": (
        "2,6,4,3",
        "m = ReduceMean<axes=[{axes}]>(x)\n q = Pow(x, two)\n p = ReduceMean<axes=[{axes}]>(q)\n o = Pow(m, two)\n"
        " w = Sub(p, o)\n v = Relu(w)\n" + POW + "h = Mul(r, column)\n a = Mul(x, h)\n k = Mul(m, h)\n y = Sub(a, k)",
        "2,3",
        "InstanceNorm",
    ),
    "as Flax writes it": (
        "2,5,6",
        "o = ReduceSum<keepdims=0>(x, middle)\n w = Div(o, five)\n m = Reshape(w, row)\n d = Sub(x, m)\n"
        " q = Mul(x, x)\n p = ReduceSum<keepdims=0>(q, middle)\n k = Div(p, five)\n l = Mul(w, w)\n t = Sub(k, l)\n"
        " z = Max(t, nothing)\n v = Reshape(z, row)\n" + INVERSE + "h = Mul(r, g)\n a = Mul(d, h)\n y = Add(a, b)",
        "1",
        "LayerNorm",
    ),
    "moments without their axes": (
        "2,5,6",
        "o = ReduceMean<axes=[{axes}], keepdims=0>(x)\n m = Unsqueeze(o, two_axis)\n d = Sub(x, m)\n q = Mul(d, d)\n"
        " v = ReduceMean<axes=[{axes}], keepdims=0>(q)\n" + SQRT + "u = Unsqueeze(s, two_axis)\n y = Div(d, u)",
        "2",
        "LayerNorm",
    ),
    "the mean twice": (
        "2,5,6",
        MEAN + "f = Sub(x, m)\n" + POWER + SQRT + "y = Div(f, s)",
        "2",
        "LayerNorm",
    ),
    "behind a sum": (
        "2,5,6",
        "a = Tanh(x)\n z = Add(a, x)\n" + OF_Z + SQUARE + SQRT + "y = Div(d, s)",
        "2",
        "LayerNorm",
    ),
    "behind many sums": (
        "2,5,6",
        "a0 = Tanh(x)\n"
        + "".join(f"t{i} = Tanh(a{i})\n a{i + 1} = Add(a{i}, t{i})\n" for i in range(9))
        + "z = Identity(a9)\n"
        + OF_Z
        + SQUARE
        + SQRT
        + "y = Div(d, s)",
        "2",
        "LayerNorm",
    ),
    "no eps": ("2,5,6", MEAN + SQUARE + "s = Sqrt(v)\n y = Div(d, s)", "2", "LayerNorm"),
    "a deviation with 1e-6 added": (
        "2,5,6",
        MEAN + SQUARE + "s = Sqrt(v)\n e = Add(s, millionth)\n n = Div(d, e)\n" + AFFINE,
        "2",
        "LayerNorm",
    ),
    "two last axes": ("2,5,6", MEAN + POWER + SQRT + "n = Div(d, s)\n" + AFFINE, "1,2", "LayerNorm"),
    "over channels": (
        "2,6,4,3",
        MEAN + POWER + SQRT + "n = Div(d, s)\n c = Unsqueeze(g, at)\n a = Mul(n, c)\n y = Add(a, a)",
        "1",
        "LayerNorm",
    ),
    "instance norm": ("2,6,4,3", MEAN + POWER + SQRT + "n = Div(d, s)\n y = Mul(n, column)", "2,3", "InstanceNorm"),
    "group norm": (
        "2,6,4,4",
        "z = Reshape(x, groups)\n" + OF_Z + SQUARE + SQRT + "n = Div(d, s)\n y = Reshape(n, back)",
        "2",
        "LayerNorm",
    ),
    "RMS": ("2,5,6", "d = Identity(x)\n" + POWER + SQRT + "n = Div(x, s)\n y = Mul(g, n)", "2", "L2Normalization"),
    "RMS by its inverse": (
        "2,4,5,6",
        "d = Identity(x)\n" + SQUARE + INVERSE + "n = Mul(x, r)\n y = Mul(n, g)",
        "3",
        "L2Normalization",
    ),
    "F.normalize": (
        "2,6,4",
        "l = ReduceL2<axes=[{axes}]>(x)\n c = Clip(l, tiny)\n f = Expand(c, whole)\n y = Div(x, f)",
        "1",
        "L2Normalization",
    ),
    "length with eps": (
        "2,6",
        "q = Mul(x, x)\n v = ReduceSum<keepdims=1>(q, last)\n" + POW + "y = Mul(x, r)",
        "1",
        "L2Normalization",
    ),
    "softmax": (
        "2,5,6",
        "m = ReduceMax<axes=[{axes}]>(x)\n d = Sub(x, m)\n p = Exp(d)\n s = ReduceSum(p, last)\n y = Div(p, s)",
        "2",
        "softmax",
    ),
    "softmax by an inverse": (
        "2,5,6",
        "p = Exp(x)\n s = ReduceSum(p, last)\n r = Reciprocal(s)\n y = Mul(r, p)",
        "2",
        "softmax",
    ),
    "log-softmax": (
        "2,5,6",
        "m = ReduceMax<axes=[{axes}]>(x)\n d = Sub(x, m)\n p = Exp(d)\n s = ReduceSum(p, last)\n l = Log(s)\n"
        " y = Sub(d, l)",
        "2",
        "log_softmax",
    ),
    "log-softmax by logsumexp": (
        "2,5,6",
        "m = ReduceMax<axes=[{axes}]>(x)\n d = Sub(x, m)\n p = Exp(d)\n s = ReduceSum(p, last)\n l = Log(s)\n"
        " t = Add(l, m)\n y = Sub(x, t)",
        "2",
        "log_softmax",
    ),
    "log of a softmax": ("2,5,6", "p = Softmax<axis=-1>(x)\n y = Log(p)", "2", "log_softmax"),
}
CONSTANTS = (
    f"{VECTORS}, {N}, float tiny = {{1e-12}}, float millionth = {{1e-6}}, "
    "int64[1] last = {-1}, int64[2] at = {1, 2}, "
    "int64[1] two_axis = {2}, int64[1] middle = {1}, int64[3] row = {2, 1, 6}, float five = {5}, float nothing = {0}, "
    "int64[3] groups = {2, 3, 32}, int64[4] back = {2, 6, 4, 4}, int64[3] whole = {2, 6, 4}, "
    f"float[6,1,1] column = {{{G}}}"
)


def prepared(model: onnx.ModelProto, **options: object) -> Prepared:
    return prepare(from_onnx(model), PreparationConfig.model_validate({"cut_softmax": False, **options}))


def differs(model: onnx.ModelProto, graph: Graph) -> float:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    x = RNG.normal(1.0, 2.0, given.shape).astype(np.float32)
    (meant,), (found,) = session.run(None, {"x": x}), graph.evaluate({"x": x})
    return float(np.abs(meant - found).max() / np.abs(meant).max())


@pytest.mark.parametrize("case", CASES)
def test_what_is_spelled_is_recognised(case: str) -> None:
    shape, lines, axes, operator = CASES[case]
    model = spelled(shape, lines.format(axes=axes), CONSTANTS)
    graph = prepared(model).graph
    assert differs(model, graph) < 5e-6
    counted = graph.count_operators()
    assert counted.get(operator) == 1
    moved = {"Reshape", "Flatten", "transpose", "broadcast_mul", "broadcast_add", "elemwise_add", "elementwise_region"}
    assert counted.keys() <= {operator} | moved


LIKE = {
    "another tensor above": (MEAN + SQUARE + SQRT + "y = Div(x, s)", "not that tensor alone"),
    "moments over the batch": (MEAN.format(axes=0) + SQUARE.format(axes=0) + SQRT + "y = Div(d, s)", "the batch"),
    "a length far from 0": (
        "q = Mul(x, x)\n v = ReduceSum<keepdims=1>(q, last)\n s = Sqrt(v)\n c = Clip(s, one)\n y = Div(x, c)",
        "its length is held to 1 from below",
    ),
    "a variance of another tensor": (
        "m = ReduceMean<axes=[2]>(x)\n t = Tanh(x)\n q = Mul(t, t)\n p = ReduceMean<axes=[2]>(q)\n o = Mul(m, m)\n"
        " w = Sub(p, o)\n v = Abs(w)\n d = Sub(x, m)\n" + SQRT + "y = Div(d, s)",
        "",
    ),
    "eps behind the root": (
        "q = Mul(x, x)\n v = ReduceMean<axes=[2]>(q)\n s = Sqrt(v)\n e = Add(s, eps)\n y = Div(x, e)",
        "is added to its length",
    ),
    "a near miss that is scaled": (
        "q = Mul(x, x)\n v = ReduceMean<axes=[2]>(q)\n s = Sqrt(v)\n e = Add(s, eps)\n n = Div(x, e)\n" + AFFINE,
        "is added to its length",
    ),
    "squares held to eps": (
        "q = Mul(x, x)\n v = ReduceMean<axes=[2]>(q)\n e = Max(v, eps)\n s = Sqrt(e)\n y = Div(x, s)",
        "is held to 1e-05 from below",
    ),
    "a sum of other powers": ("p = Exp(x)\n h = Mul(p, p)\n s = ReduceSum(h, last)\n y = Div(p, s)", ""),
    "more in the sum": (
        "p = Exp(x)\n s = ReduceSum(p, last)\n t = Add(s, one)\n y = Div(p, t)",
        "is added to its sum",
    ),
}


@pytest.mark.parametrize("case", LIKE)
def test_what_only_looks_alike_stays_what_it_is(case: str) -> None:
    lines, reason = LIKE[case]
    model = spelled("2,5,6", lines.format(axes="2"), f"{CONSTANTS}, {numbers(one=1.0)}")
    graph = from_onnx(model)
    found = SpelledOut().run(graph)
    assert found.graph.count_operators() == graph.count_operators() and differs(model, found.graph) < 2e-6
    assert [refusal.reason for refusal in found.refusals if not reason or reason not in refusal.reason] == []
    assert len(found.refusals) == bool(reason)


def test_what_is_read_elsewhere_stays() -> None:
    lines = MEAN + SQUARE + SQRT + "n = Div(d, s)\n w = Mul(n, m)\n y = Add(w, v)"
    model = spelled("2,5,6", lines.format(axes="2"), CONSTANTS)
    graph = prepared(model).graph
    assert differs(model, graph) < 2e-6 and graph.count_operators()["LayerNorm"] == 1


def test_split_keeps_the_symbol_that_it_names() -> None:
    lines = MEAN + SQUARE + SQRT + "y = Div(d, s)"
    model = spelled("2,5,6", lines.format(axes="2"), CONSTANTS)
    cut = prepared(model, split=["s"])
    assert cut.postprocess is not None and "s" in cut.postprocess.by_name
    assert any("prepare.split names s" in refusal.reason for refusal in cut.refusals)
    assert prepared(model, split=["y"]).postprocess is not None


def test_a_spelled_softmax_at_the_end_is_cut_off() -> None:
    shape, lines, axes, _ = CASES["softmax"]
    model = spelled(shape, "z = Relu(x)\n" + lines.format(axes=axes).replace("(x", "(z"), CONSTANTS)
    cut = prepared(model, cut_softmax=True)
    assert cut.postprocess is not None and set(cut.graph.count_operators()) == {"relu"}


ACTIVATIONS = {
    "GELU by erf": "t = Mul(x, inverse)\n e = Erf(t)\n f = Add(one, e)\n h = Mul(x, half)\n y = Mul(h, f)",
    "GELU by tanh": (
        "s = Mul(x, x)\n p = Mul(s, x)\n t = Mul(c, p)\n u = Add(t, x)\n w = Mul(k, u)\n h = Tanh(w)\n"
        " i = Add(one, h)\n a = Mul(half, i)\n y = Mul(x, a)"
    ),
    "SiLU by exp": "n = Neg(x)\n e = Exp(n)\n f = Add(e, one)\n r = Reciprocal(f)\n y = Mul(x, r)",
    "hard-swish by relu and min": (
        "a = Add(three, x)\n b = Relu(a)\n m = Min(b, six)\n d = Div(m, six)\n y = Mul(d, x)"
    ),
    "mish by log": "e = Exp(x)\n f = Add(e, one)\n l = Log(f)\n t = Tanh(l)\n y = Mul(t, x)",
}


@pytest.mark.parametrize("case", ACTIVATIONS)
def test_activations_in_any_order_become_one_table(case: str) -> None:
    given = numbers(one=1, half=0.5, three=3, six=6, inverse=0.70710678, c=0.044715, k=0.79788456)
    model = spelled("2,5,6", ACTIVATIONS[case], given)
    graph = prepared(model).graph
    assert differs(model, graph) < 2e-6 and graph.count_operators() == {"elementwise_region": 1}

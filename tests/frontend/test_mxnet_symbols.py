"""Symbol files: every version's form, which variables are inputs, what is refused, and what is damaged."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mxnet_files import random, symbol_json, write_params
from mxnet_networks import WEIGHTS, X, dense, edited, relu

import mrt
from mrt.config import load_config
from mrt.errors import ConfigError, GraphError, ModelFileError, MRTError, UnsupportedOperatorError
from mrt.frontend import from_mxnet, load_model
from mrt.pipeline import run_pipeline
from mrt.symbol.operators.activation import Clip


@pytest.mark.parametrize("key", ["attrs", "attr", "param"])
@pytest.mark.parametrize("head", [[1, 0], [1, 0, 0]])
def test_attributes_under_every_key(key: str, head: list[int]) -> None:
    text = edited(relu("clip", key, a_min="-1", a_max="1e+2"), heads=[head])
    assert from_mxnet(text, {}, X).outputs[0].operator == Clip(a_min=-1.0, a_max=100.0)


def test_what_users_note_is_no_attribute() -> None:
    notes = {"__lr_mult__": "0.1", "ctx_group": "dev1", "weight_lr_mult": "2", "__anything__": "{"}
    assert from_mxnet(relu(**notes), {}, X).outputs[0].op == "relu"
    content = json.loads(relu("_PlusScalar", "param", scalar="2"))
    content["nodes"][1]["attr"] = {"whatever": "0.1"}
    assert from_mxnet(json.dumps(content), {}, X).outputs[0].op == "_plus_scalar"


@pytest.mark.parametrize("as_file", [False, True])
def test_symbol_and_parameters_as_files_and_as_values(as_file: bool, tmp_path: Path) -> None:
    x = random(2, 3)
    text, content = dense(), write_params(WEIGHTS)
    symbol: Any = text
    if as_file:
        symbol, path = tmp_path / "net-symbol.json", tmp_path / "net-0000.params"
        symbol.write_text(text)
        path.write_bytes(content)
        graph = from_mxnet(str(symbol), path, X)
    else:
        graph = from_mxnet(text, content, X)
    expected = x @ WEIGHTS["arg:fc_weight"].T + WEIGHTS["arg:fc_bias"]
    np.testing.assert_allclose(graph.evaluate({"x": x})[0], expected, rtol=1e-6)
    plain = {name[4:]: array.astype(np.float64) for name, array in WEIGHTS.items()}
    assert from_mxnet(symbol, plain, X).parameters["fc_weight"].dtype == np.float32


def test_shapes_of_inputs() -> None:
    assert from_mxnet(dense(__shape__="(0, 3)"), WEIGHTS, batch=5).inputs[0].shape == (5, 3)
    assert from_mxnet(dense(__shape__="(-1, 3)", __dtype__="1"), WEIGHTS).inputs[0].dtype == "float32"
    assert from_mxnet(dense(__shape__="(7, 3)"), WEIGHTS, X, batch=5).inputs[0].shape == (2, 3)
    with pytest.raises(GraphError, match="x has no array in the parameter file, and no shape in the symbol file"):
        from_mxnet(dense(), WEIGHTS)
    with pytest.raises(GraphError, match=r"input x has the dynamic axis 1 .*give --shape x=2,SIZE1"):
        from_mxnet(dense(__shape__="(2, 0)"), WEIGHTS)
    with pytest.raises(GraphError, match="shapes are given for z, which no input is called; the inputs are x"):
        from_mxnet(dense(), WEIGHTS, X | {"z": (1,)})
    for shape in ((2, 0), (-1, 3), (2, 3.5)):
        with pytest.raises(GraphError, match="shape given for input x"):
            from_mxnet(dense(), WEIGHTS, {"x": shape})  # type: ignore[dict-item]


def test_parameters_that_do_not_fit() -> None:
    with pytest.raises(ModelFileError, match="parameter fc_bias, the bias of fc, is missing"):
        from_mxnet(dense(), {"fc_weight": random(4, 3)}, X)
    with pytest.raises(ModelFileError, match=r"parameter fc_weight has shape \(5, 3\); the symbol file says \(4, 0\)"):
        from_mxnet(dense(), WEIGHTS | {"arg:fc_weight": random(5, 3)}, X)
    with pytest.raises(GraphError, match=r"fc \(FullyConnected\): weight is float32\[4, 9\]"):
        from_mxnet(dense(), WEIGHTS | {"arg:fc_weight": random(4, 9)}, X)
    with pytest.raises(ModelFileError, match=r"parameter fc_bias has shape \(4,\); \(5,\) is given for it"):
        from_mxnet(dense(), WEIGHTS, X | {"fc_bias": (5,)})
    with pytest.raises(ModelFileError, match="params holds two arrays called a"):
        from_mxnet(dense(), {"arg:a": random(1), "aux:a": random(1)}, X)
    assert [s.name for s in from_mxnet(dense(), {"fc_weight": random(4, 3)}, X | {"fc_bias": (4,)}).inputs] == [
        "x",
        "fc_bias",
    ]


def test_labels_and_dead_nodes_are_no_inputs() -> None:
    text = symbol_json(
        ("null", "x", []),
        ("null", "label", []),
        ("Reshape", "flat_label", [[1, 0]], {"shape": "(-1,)"}),
        ("erfinv", "dead", [[0, 0]]),
        ("SoftmaxOutput", "softmax", [[0, 0], [2, 0]]),
    )
    graph = from_mxnet(text, {}, X | {"label": (2,)})
    assert [symbol.name for symbol in graph.symbols] == ["x", "softmax"]
    assert graph.inputs == (graph.by_name["x"],)


def test_every_uncovered_operator_is_listed_with_count_and_names() -> None:
    names = [("erfinv", "a"), ("erfinv", "b"), ("hypot", "c"), ("erfinv", "d"), ("erfinv", "e")]
    nodes = [(op, name, [[place, 0]]) for place, (op, name) in enumerate(names)]
    with pytest.raises(UnsupportedOperatorError) as error:
        from_mxnet(symbol_json(("null", "x", []), *nodes), {}, X)
    assert "uses 2 operators not covered: erfinv ×4 (a, b, d, …); hypot ×1 (c); replace them" in str(error.value)


def test_second_outputs_are_not_covered() -> None:
    for op in ("relu", "Dropout"):
        with pytest.raises(UnsupportedOperatorError, match=rf"y \({op}\): output 1 is used"):
            from_mxnet(edited(relu(op), heads=[[1, 1, 0]]), {}, X)
    with pytest.raises(ModelFileError, match="output 1 of x is a head"):
        from_mxnet(edited(relu(), heads=[[0, 1, 0]]), {}, X)
    with pytest.raises(GraphError, match=r"y \(relu\): input 0 is missing"):
        from_mxnet(symbol_json(("null", "x", []), ("relu", "y", [[0, 1]])), {}, X)


def test_names() -> None:
    """Operators may share a name; what does nothing keeps its own; made-up names give way."""
    text = symbol_json(("null", "x", []), ("relu", "y", [[0, 0]]), ("relu", "y", [[1, 0]]))
    assert [symbol.name for symbol in from_mxnet(text, {}, X).symbols] == ["x", "y", "y_1"]
    text = symbol_json(("null", "x", []), ("MakeLoss", "loss", [[0, 0]]), ("Cast", "c", [[1, 0]], {"dtype": "float16"}))
    graph = from_mxnet(text, {}, X)
    assert [(symbol.name, symbol.op) for symbol in graph.operators] == [("loss", "_copy"), ("c", "_copy")]
    for name in ("a\nb", "\ud800", "", "\x00"):
        with pytest.raises(ModelFileError, match="names of printable characters are needed"):
            from_mxnet(symbol_json(("null", "x", []), ("relu", name, [[0, 0]])), {}, X)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (("clip", {"a_min": "0"}), r"y \(clip\): clip needs the attributes \['a_max'\]"),
        (("clip", {"a_min": "zero", "a_max": "1"}), r"y \(clip\): clip.a_min is 'zero'; float is needed"),
        (("relu", {"slope": "1"}), r"y \(relu\): relu has no attribute slope"),
        (("FullyConnected", {"num_hidden": "3"}), r"y \(FullyConnected\): .*inputs are given"),
        (("transpose", {"axes": "(0, 2)"}), r"y \(transpose\): axis 2 is outside"),
        (("Activation", {"act_type": "log_sigmoid"}), r"y \(Activation\): attribute act_type is log_sigmoid"),
        (("LeakyReLU", {"act_type": "swish"}), r"y \(LeakyReLU\): attribute act_type is swish"),
        (("Pooling", {"pool_type": "lp"}), r"y \(Pooling\): attribute pool_type is lp"),
        (("Pooling", {"pooling_convention": "same"}), r"y \(Pooling\): attribute pooling_convention is same"),
        (("Convolution", {"layout": "CHWN"}), r"y \(Convolution\): attribute layout is CHWN"),
        (("Cast", {"dtype": "uint64"}), r"y \(Cast\): attribute dtype is uint64"),
        (("UpSampling", {"sample_type": "cubic"}), r"y \(UpSampling\): attribute sample_type is cubic"),
        (("SoftmaxActivation", {"mode": "row"}), r"y \(SoftmaxActivation\): attribute mode is row"),
        (("norm", {"ord": "3"}), r"y \(norm\): attribute ord is 3"),
        (("softmax", {"use_length": "True"}), r"y \(softmax\): attribute use_length is True"),
        (("split", {"num_outputs": "2"}), r"y \(split\): outputs \[0\] of 2 of float32\[2, 3\] along axis 1"),
        (("split", {}), r"y \(split\): attribute num_outputs is missing"),
        (("split", {"num_outputs": "three"}), r"y \(split\): attribute num_outputs is 'three'"),
        (("split", {"num_outputs": "1", "axis": "5"}), r"y \(split\): axis 5 is outside"),
        (("split", {"num_outputs": "1", "squeeze_axis": "1"}), r"y \(split\): .* 1 is needed for squeeze_axis"),
        (("Reshape", {"shape": "(-1, 5)"}), r"y \(Reshape\): .*nothing fits -1"),
        (("Reshape", {"target_shape": "(0, 0)"}), r"y \(Reshape\): neither attribute shape nor target_shape"),
        (("broadcast_to", {"shape": "(5, 3)"}), r"y \(broadcast_to\): .* does not broadcast to \(5, 3\)"),
        (("LRN", {"nsize": "3"}), r"y \(LRN\): .* rank 4"),
        (("Crop", {"h_w": "(1, 1)"}), r"y \(Crop\): .* rank 4"),
        (("_zeros", {"shape": "(1000000, 1000000)"}), r"y \(_zeros\): a tensor of shape .* elements are allowed"),
        (("one_hot", {"depth": "1000000"}), r"y \(one_hot\): a tensor of shape .* elements are allowed"),
        (("tile", {"reps": "(100000, 100000)"}), r"y \(tile\): a tensor of shape .* at most 2147483648 elements"),
    ],
)
def test_operators_that_do_not_fit_are_named(attributes: tuple[str, dict[str, str]], message: str) -> None:
    with pytest.raises(MRTError, match=message):
        from_mxnet(relu(attributes[0], **attributes[1]), {}, X)


def test_hostile_sizes_end_at_once() -> None:
    """Neither lists nor arrays are made as large as attributes say."""
    window = {"kernel": "(1, 1)", "pad": "(1000000000, 1000000000)"}
    pooled = relu("Pooling", **window)
    cases = [(pooled, {"x": (1, 1, 4, 4)}), (relu("Pooling", kernel="(1,)"), {"x": (1, 1, 2**30)})]
    cases += [(relu(), {"x": (2**62, 2**62)}), (relu("expand_dims", axis="9" * 400), X)]
    cases += [(relu("Reshape", shape="(" * 50_000), X), (relu("repeat", repeats="1" + "0" * 60, axis="0"), X)]
    for text, shapes in cases:
        started = time.perf_counter()
        with pytest.raises(MRTError):
            from_mxnet(text, {}, shapes)
        assert time.perf_counter() - started < 60  # a hang, on any machine


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no JSON"),
        ("[]", "an object is needed"),
        ("[" * 100_000, "nested too deeply"),
        ("{}", "a list nodes is needed"),
        (relu()[:-9], "no JSON"),
        (symbol_json(("relu", "x", [[0, 0]])), "of an earlier node is needed"),
        (
            symbol_json(("null", "x", []), ("relu", "y", [[2, 0]]), ("relu", "z", [[1, 0]])),
            "inputs of y .* earlier node",
        ),
        (symbol_json(("null", "x", []), ("relu", "y", [[-1, 0]])), "earlier node"),
        (symbol_json(("null", "x", [], {"__shape__": "(2, -3)"}), ("relu", "y", [[0, 0]])), "__shape__"),
        (symbol_json(("null", "x", [], {"__shape__": "(2"}), ("relu", "y", [[0, 0]])), "the symbol file is malformed"),
        (symbol_json(("null", "x", [], {"__shape__": "(2,)", "__dtype__": "77"})), "has __dtype__ 77"),
        (edited(relu(), attrs={"format_version": ["int", 1]}), "was written by MRT; mrt.load reads"),
    ],
)
def test_damaged_files_are_one_clear_error(text: str, message: str) -> None:
    started = time.perf_counter()
    with pytest.raises(ModelFileError, match=message) as caught:
        from_mxnet(text, {})
    assert time.perf_counter() - started < 60  # a hang, on any machine
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_a_chain_of_thousands_of_operators() -> None:
    nodes = [("relu", f"r{place}", [[place, 0]]) for place in range(3_000)]
    graph = from_mxnet(symbol_json(("null", "x", []), *nodes), {}, X)
    assert len(graph.operators) == 3_000


def save_network(folder: Path, *numbers: int) -> Path:
    """A checkpoint whose bias is the number of its parameter file."""
    for number in numbers:
        arrays = {"arg:fc_weight": np.zeros((4, 3), np.float32), "arg:fc_bias": np.full(4, number, np.float32)}
        (folder / f"a.b-{number:04}.params").write_bytes(write_params(arrays))
    (folder / "a.b-symbol.json").write_text(dense())
    return folder / "a.b-symbol.json"


def test_checkpoints_take_the_highest_number(tmp_path: Path) -> None:
    path = save_network(tmp_path)
    with pytest.raises(ModelFileError, match=r"no parameters called a\.b-0000\.params"):
        load_model(path, shapes=X)
    save_network(tmp_path, 0, 9, 10)
    (tmp_path / "a.b-best.params").write_bytes(b"")
    (tmp_path / "axb-0099.params").write_bytes(b"")
    assert mrt.load_model(path, shapes=X).evaluate({"x": random(2, 3)})[0].tolist() == [[10.0] * 4] * 2
    (tmp_path / "other.json").write_text(dense())
    with pytest.raises(ModelFileError, match=r"not called NAME-symbol\.json; use mrt\.from_mxnet"):
        load_model(tmp_path / "other.json", shapes=X)


def test_a_configuration_says_the_shapes(tmp_path: Path) -> None:
    save_network(tmp_path, 1)
    (tmp_path / "run.yaml").write_text("model: {path: a.b-symbol.json, shapes: {x: [2, 3]}}\noutput: out\n")
    run_pipeline(load_config(tmp_path / "run.yaml"), last="prepare")
    assert (tmp_path / "out" / "stages").is_dir()
    for shapes in ("{x: [2, 0]}", "{x: []}", "{x: data}"):
        (tmp_path / "run.yaml").write_text(f"model: {{path: a.b-symbol.json, shapes: {shapes}}}\n")
        with pytest.raises(ConfigError, match=r"model\.shapes\.x"):
            load_config(tmp_path / "run.yaml")


def test_the_format_is_told_by_the_content(tmp_path: Path) -> None:
    import onnx
    from onnx_models import single

    path = save_network(tmp_path, 3)
    path.write_text("\ufeff\n  " + path.read_text(), encoding="utf-8")
    assert load_model(path, shapes=X).outputs[0].name == "fc"
    with pytest.raises(ModelFileError, match=r"holds the parameters of an MXNet model; give its NAME-symbol\.json"):
        load_model(tmp_path / "a.b-0003.params")
    onnx.save(single("Relu", (1, 3)), tmp_path / "net.model", format="protobuf")
    assert load_model(tmp_path / "net.model").outputs[0].op == "relu"
    with pytest.raises(GraphError, match=r"input x: the shape \(2, 3\) is given; the file needs \(1, 3\)"):
        load_model(tmp_path / "net.model", shapes=X)
    (tmp_path / "net.txt").write_text("a text")
    with pytest.raises(ModelFileError, match="no model that is read"):
        load_model(tmp_path / "net.txt")

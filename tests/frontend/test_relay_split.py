"""Relay texts that are cut while they are read, and texts whose parameters are drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from relay_texts import function

import mrt
from mrt.config import load_config
from mrt.errors import ConfigError, DataError, GraphError, UnsupportedOperatorError
from mrt.frontend.relay import from_relay
from mrt.preparation import prepare

CUT = function(
    "(%2, %4)",
    [
        "%0 = tanh(%x)",
        "%1 = split(%0, indices_or_sections=2, axis=1)",
        "%2 = exp(%1.0)",
        "%3 = invert(%1.1)",
        "%4 = add(%3, %2)",
    ],
    x=(1, 4),
)


def test_a_refusal_names_the_lines_and_the_split_that_ends_the_network_before() -> None:
    message = (
        r"1 operator not covered: invert ×1 \(invert_3 in line 6\); .*"
        r"to end it before them, with 3 of its 5 operators: .*invert_3"
    )
    with pytest.raises(UnsupportedOperatorError, match=message):
        from_relay(CUT)


def test_what_follows_a_split_need_not_be_covered() -> None:
    graph = from_relay(CUT, split=["invert*"])
    assert graph.left_out == {"invert_3": "invert", "add_4": "add"}
    x = np.array([[0.5, -1.0, 2.0, 0.0]], np.float32)
    front, back = graph.evaluate({"x": x})
    np.testing.assert_allclose(front, np.exp(np.tanh(x[:, :2])), rtol=1e-6)
    np.testing.assert_allclose(back, np.tanh(x[:, 2:]), rtol=1e-6)
    with pytest.raises(ConfigError, match="'argmax' matches no operator of the model; the nearest names are"):
        from_relay(CUT, split=["argmax"])


def test_a_choice_at_the_end_is_cut_by_itself() -> None:
    graph = from_relay(CUT.replace("invert", "argsort"))
    assert graph.left_out == {"argsort_3": "argsort", "add_4": "add"}


def test_a_split_in_functions_that_are_inlined_and_in_conditions() -> None:
    text = function(
        "if (%3) {\n %2\n} else {\n %x\n}",
        ["%0 = fn (%y) { exp(%y) }", "%1 = %0(%x)", "%2 = %0(%1)", "%3 = less(%2, %1)"],
        x=(2,),
    )
    with pytest.raises(UnsupportedOperatorError, match=r"if ×1 .*with 3 of its 4 operators"):
        from_relay(text)
    graph = from_relay(text, split=["if"])
    assert len(graph.outputs) == 2
    np.testing.assert_allclose(graph.evaluate({"x": np.zeros(2)})[0], np.full(2, np.e), rtol=1e-6)


NETWORK = function(
    "%9",
    [
        "%0 = nn.conv2d(%x, %w, padding=[1, 1, 1, 1], channels=8, kernel_size=[3, 3])",
        "%1 = expand_dims(%b, axis=1, num_newaxis=2)",
        "%2 = add(%0, %1)",
        "%3 = nn.batch_norm(%2, %gamma, %beta, %mean, %var)",
        "%4 = nn.relu(%3.0)",
        "%5 = nn.global_avg_pool2d(%4)",
        "%6 = nn.batch_flatten(%5)",
        "%7 = nn.dense(%6, %v)",
        "%8 = add(%7, %state)",
        "%9 = multiply(%8, %k)",
    ],
    x=(1, 3, 8, 8),
    w=(8, 3, 3, 3),
    b=(8,),
    gamma=(8,),
    beta=(8,),
    mean=(8,),
    var=(8,),
    v=(4, 8),
    state=(1, 4),
    k="float32",
)


def test_parameters_that_are_drawn() -> None:
    with pytest.raises(DataError, match=r"6 arguments are weights and have no value: .*--random-params \(or model\."):
        from_relay(NETWORK)
    graph = from_relay(NETWORK, random_params=True, shapes={"state": (1, 4)})
    assert [symbol.name for symbol in graph.inputs] == ["x", "state"]
    assert graph.notes[0].startswith("8 parameters without values are random, so that no result means anything (w, b")
    assert graph.notes[0].endswith("the inputs are x, state")
    again = from_relay(NETWORK, random_params=True, shapes={"state": (1, 4)})
    assert all((again.parameters[name] == value).all() for name, value in graph.parameters.items())
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    values = {symbol.name: value for symbol, value in graph.walk({"x": x, "state": np.zeros((1, 4))})}
    # Variances are positive, and weights leave the size of values about as it is.
    assert all(np.isfinite(value).all() for value in values.values())
    (convolution,) = (symbol for symbol in graph.operators if symbol.op == "Convolution")
    assert 0.3 < values[convolution.name].std() / x.std() < 3
    assert graph.notes[0] in prepare(graph).notes


def test_values_that_are_given_are_kept() -> None:
    w = np.full((8, 3, 3, 3), 0.25, np.float32)
    graph = from_relay(NETWORK, {"w": w}, random_params=True)
    assert (graph.parameters["w"] == w).all() and graph.notes[0].startswith("8 parameters")


def test_the_option_of_files_and_configurations(tmp_path: Path) -> None:
    path = tmp_path / "net.relay"
    path.write_text(NETWORK)
    with pytest.raises(DataError, match="--random-params"):
        mrt.load_model(path)
    assert mrt.load_model(path, random_params=True).notes
    config = tmp_path / "run.yaml"
    config.write_text("model: {path: net.relay}\n")
    assert not load_config(config).model.random_params
    assert load_config(config, random_params=True).model.random_params
    (tmp_path / "net.onnx").write_bytes(b"\x08\x08")
    with pytest.raises(GraphError, match="random_params is given, but an ONNX file has"):
        mrt.load_model(tmp_path / "net.onnx", random_params=True)

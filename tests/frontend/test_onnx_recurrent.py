"""LSTM, GRU and RNN of ONNX against ONNX Runtime, and what of them is refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import assert_agrees, make_model, random_feeds, run_onnxruntime

import mrt
from mrt.errors import UnsupportedOperatorError
from mrt.frontend.onnx import from_onnx
from mrt.symbol import NumpyRunner

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
OUTPUTS = {"LSTM": ("y", "y_h", "y_c"), "GRU": ("y", "y_h"), "RNN": ("y", "y_h")}


def layer(
    kind: str,
    steps: int = 4,
    batch: int = 2,
    features: int = 3,
    hidden: int = 5,
    direction: str = "forward",
    opset: int = 17,
    bias: bool = True,
    given: tuple[str, ...] = (),
    outputs: tuple[str, ...] | None = None,
    constants: dict[str, np.ndarray] | None = None,
    **attributes: object,
) -> onnx.ModelProto:
    """A layer of random weights. given: which of h, c are inputs; constants: other inputs by name, as h, c, lens, p."""
    rng = np.random.default_rng(7)
    count, rows = 2 if direction == "bidirectional" else 1, GATES[kind] * hidden
    layout = attributes.get("layout", 0)
    state = [batch, count, hidden] if layout else [count, batch, hidden]
    arrays = {
        "w": rng.standard_normal((count, rows, features)),
        "r": rng.standard_normal((count, rows, hidden)),
        "b": rng.standard_normal((count, 2 * rows)),
    }
    names = ["x", "w", "r", "b" if bias else ""]
    arrays = {name: array.astype(np.float32) for name, array in arrays.items() if name in names} | (constants or {})
    names += [name if name in arrays or name in given else "" for name in ("lens", "h", "c", "p")]
    while not names[-1]:
        names.pop()
    node = helper.make_node(
        kind, names, outputs or OUTPUTS[kind], hidden_size=hidden, direction=direction, **attributes
    )
    inputs = {"x": [batch, steps, features] if layout else [steps, batch, features]} | dict.fromkeys(given, state)
    shown = [name for name in outputs or OUTPUTS[kind] if name]
    return make_model([node], inputs, shown, arrays, opset)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("given", [(), ("h", "c")])
def test_directions_and_initial_states(kind: str, direction: str, given: tuple[str, ...]) -> None:
    assert_agrees(layer(kind, direction=direction, given=given if kind == "LSTM" else given[:1]))


@pytest.mark.parametrize("opset", [9, 11, 13, 21])
@pytest.mark.parametrize("kind", GATES)
def test_opsets_and_layers_without_a_bias(kind: str, opset: int) -> None:
    assert_agrees(layer(kind, opset=opset, bias=False))


@pytest.mark.parametrize("kind", GATES)
def test_batches_first(kind: str) -> None:
    """ONNX Runtime lacks this layout: against its other one."""
    model = layer(kind, layout=1, outputs=OUTPUTS[kind][:2])
    other = layer(kind, layout=0, outputs=OUTPUTS[kind][:2])
    feeds = random_feeds(from_onnx(model))
    y, last = from_onnx(model).evaluate(feeds)
    expected_y, expected_last = run_onnxruntime(other, {"x": feeds["x"].transpose(1, 0, 2)})
    np.testing.assert_allclose(y, expected_y.transpose(2, 0, 1, 3), atol=2e-6)
    np.testing.assert_allclose(last, expected_last.transpose(1, 0, 2), atol=2e-6)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("given", [(), ("h",)])
def test_gru_that_resets_after_the_product(direction: str, given: tuple[str, ...]) -> None:
    assert_agrees(layer("GRU", direction=direction, given=given, linear_before_reset=1))


@pytest.mark.parametrize("kind", GATES)
def test_clip_bounds_what_activations_are_given(kind: str) -> None:
    assert_agrees(layer(kind, clip=0.3))


def test_lstm_that_forgets_what_it_takes_in() -> None:
    """ONNX's own implementation leaves `input_forget` out; ONNX Runtime has it."""
    assert_agrees(layer("LSTM", input_forget=1, given=("h", "c")))


def test_activations_with_their_numbers_in_order() -> None:
    assert_agrees(
        layer(
            "LSTM",
            direction="bidirectional",
            activations=["HardSigmoid", "Tanh", "LeakyRelu", "Sigmoid", "Affine", "ScaledTanh"],
            activation_alpha=[0.3, 0.2, 0.7, 1.5],
            activation_beta=[0.4, 0.1, 0.6],
        )
    )


@pytest.mark.parametrize("name", ["Relu", "Softsign", "Softplus", "Elu"])
def test_other_activations(name: str) -> None:
    assert_agrees(layer("RNN", activations=[name]))


def test_constant_states_and_lengths() -> None:
    h = np.random.default_rng(1).standard_normal((1, 2, 5)).astype(np.float32)
    lengths = np.full(2, 4, np.int32)
    assert_agrees(layer("LSTM", constants={"h": h, "c": np.zeros_like(h), "lens": lengths}))


def test_outputs_that_are_left_out() -> None:
    assert_agrees(layer("LSTM", outputs=("", "", "y_c")))
    assert_agrees(layer("GRU", outputs=("", "y_h")))


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({"lens": np.asarray([4, 2], np.int32)}, r"sequence_lens is \(4, 2\)"),
        ({"p": np.ones((1, 15), np.float32)}, "peepholes"),
    ],
)
def test_what_is_refused_by_name(constants: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match=message):
        from_onnx(layer("LSTM", constants=constants))


def test_dynamic_quantization_of_a_layer_says_what_to_do() -> None:
    node = helper.make_node("DynamicQuantizeLSTM", ["x", "w", "r"], ["y"], domain="com.microsoft", hidden_size=5)
    model = make_model([node], {"x": [4, 2, 3]}, constants={"w": np.ones(1, np.float32), "r": np.ones(1, np.float32)})
    with pytest.raises(UnsupportedOperatorError, match="DynamicQuantizeLSTM.*float model"):
        from_onnx(model)


@pytest.mark.parametrize("kind", GATES)
def test_integers_of_a_layer(kind: str) -> None:
    """Quantized by default, proven, compiled to the integers of `evaluate`, and near to float."""
    sizes = {"steps": 2, "batch": 1, "features": 4, "hidden": 8}
    rng = np.random.default_rng(2)
    samples = [rng.standard_normal((1, 2, 4)).astype(np.float32) for _ in range(8)]
    quantized = mrt.quantize(from_onnx(layer(kind, layout=1, **sizes)), samples, runner=NumpyRunner())
    fed = quantized.quantize_inputs(samples[0])
    integers = quantized.graph.evaluate(fed)
    for got, expected in zip(quantized.compile().run_integer(fed), integers, strict=True):
        np.testing.assert_array_equal(got, expected)
    y, *last = run_onnxruntime(layer(kind, **sizes), {"x": samples[0].transpose(1, 0, 2)})
    wanted = [y.transpose(2, 0, 1, 3), *(state.transpose(1, 0, 2) for state in last)]
    for got, expected in zip(quantized.dequantize_outputs(integers), wanted, strict=True):
        assert 10 * np.log10((expected**2).sum() / ((got - expected) ** 2).sum()) > 30

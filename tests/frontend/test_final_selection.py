"""Networks that end with a choice among their results are read up to it, and a note says so."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import run_onnxruntime

import mrt
from mrt.errors import UnsupportedOperatorError
from mrt.preparation import prepare
from mrt.symbol import NumpyRunner

RNG = np.random.default_rng(8)


def detector(*, layer_behind: bool = False) -> onnx.ModelProto:
    """Boxes [N, 6, 4] and scores [N, 2, 6] of features, chosen by NonMaxSuppression, and the best 3 scores."""
    weights = {
        "of_box": RNG.standard_normal((5, 4)).astype(np.float32),
        "of_class": RNG.standard_normal((5, 2)).astype(np.float32),
        "most": np.array([3], np.int64),
        "overlap": np.array([0.5], np.float32),
        "square": RNG.standard_normal((3, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "of_box"], ["boxes"]),
        helper.make_node("MatMul", ["x", "of_class"], ["classes"]),
        helper.make_node("Sigmoid", ["classes"], ["shares"]),
        helper.make_node("Transpose", ["shares"], ["scores"], perm=[0, 2, 1]),
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "overlap"], ["chosen"]),
        helper.make_node("TopK", ["scores", "most"], ["best", "places"]),
    ]
    outputs = ["chosen", "best"]
    if layer_behind:
        nodes.append(helper.make_node("Cast", ["chosen"], ["rows"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("MatMul", ["rows", "square"], ["next"]))
        outputs = ["next"]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 6, 5))],
        [helper.make_tensor_value_info(n, {"chosen": 7}.get(n, 1), None) for n in outputs],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_what_chooses_among_results_is_left_out_and_said() -> None:
    model = detector()
    graph = mrt.from_onnx(model)
    assert [output.name for output in graph.outputs] == ["boxes", "scores"]
    x = RNG.standard_normal((1, 6, 5)).astype(np.float32)
    boxes, scores = graph.evaluate({"x": x})
    # What was left out, run by ONNX Runtime on these outputs, gives what the whole model gives.
    rest = onnx.utils.Extractor(onnx.shape_inference.infer_shapes(model))
    tail = rest.extract_model(["boxes", "scores"], ["chosen", "best"])
    for found, wanted in zip(
        run_onnxruntime(tail, {"boxes": boxes, "scores": scores}), run_onnxruntime(model, {"x": x}), strict=True
    ):
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    (note,) = prepare(graph).notes
    assert "the choice among results at its end cannot be read" in note
    assert "NonMaxSuppression ×1, TopK ×1" in note and "its outputs are boxes, scores, on which" in note


def test_the_note_stays_with_the_quantized_model() -> None:
    x = RNG.standard_normal((8, 6, 5)).astype(np.float32)
    quantized = mrt.quantize(mrt.from_onnx(detector()), [x], mrt.QuantizationConfig(preset="mrt"), runner=NumpyRunner())
    assert any("the choice among results" in note for note in quantized.notes)


def test_a_choice_in_front_of_a_layer_is_not_the_end() -> None:
    with pytest.raises(UnsupportedOperatorError, match="NonMaxSuppression"):
        mrt.from_onnx(detector(layer_behind=True))


def test_elements_that_truth_values_take_are_a_choice() -> None:
    """`y[y > 0]` of PyTorch, whose length the data decide."""
    torch = pytest.importorskip("torch")

    class Positive(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 20)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[name-defined]
            y = self.layer(x)
            return y[y > 0], y

    network, x = Positive().eval(), torch.randn(2, 8)
    graph = mrt.from_torch(torch.export.export(network, (x,)))
    y, mask = graph.evaluate({"x": x.numpy()})
    np.testing.assert_allclose(y[mask > 0], network(x)[0].detach().numpy(), rtol=1e-5, atol=1e-6)
    (note,) = prepare(graph).notes
    assert "the choice among results" in note and "aten.index.Tensor by truth values" in note

"""Networks whose batch is not axis 0 of every input and output, given with their batch in front."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import mrt
from mrt import Graph, MRTError
from mrt.config import load_config
from mrt.errors import ConfigError
from mrt.pipeline import run_of
from mrt.progress import Reporter
from mrt.symbol import NumpyRunner, TensorType
from mrt.symbol.operators.transform import Transpose
from mrt.symbol.rebatch import Rebatch
from mrt.symbol.symbol import apply, variable
from mrt.workspace import Workspace

TIME, STATE, CLASSES = 5, 8, 6
RNG = np.random.default_rng(11)


def parameter(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array((RNG.standard_normal(shape) / 2).astype(np.float32), name)


def model(nodes: list[onnx.NodeProto], inputs: dict, outputs: dict, parameters: list) -> onnx.ModelProto:
    def values(shapes: dict) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]

    graph = helper.make_graph(nodes, "net", values(inputs), values(outputs), parameters)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made, full_check=True)
    return made


def recurrent() -> onnx.ModelProto:
    """Sequences [T, B, C] beside a state [1, B, C], a normalisation, a head and its mean; the batch is open."""
    nodes = [
        helper.make_node("GRU", ["x", "w", "r", "", "", "h"], ["y", "last"], hidden_size=STATE),
        helper.make_node("Squeeze", ["y", "one"], ["rows"]),
        helper.make_node("LayerNormalization", ["rows", "gain", "shift"], ["normal"], axis=-1),
        helper.make_node("MatMul", ["normal", "head"], ["logits"]),
        helper.make_node("Transpose", ["logits"], ["by_class"], perm=[2, 0, 1]),
        helper.make_node("ReduceMean", ["logits"], ["mean"], axes=[0], keepdims=0),
    ]
    parameters = [
        parameter("w", 1, 3 * STATE, 4),
        parameter("r", 1, 3 * STATE, STATE),
        parameter("gain", STATE),
        parameter("shift", STATE),
        parameter("head", STATE, CLASSES),
        numpy_helper.from_array(np.array([1]), "one"),
    ]
    outputs = {
        "logits": [TIME, "N", CLASSES],
        "last": [1, "N", STATE],
        "by_class": [CLASSES, TIME, "N"],
        "mean": ["N", CLASSES],
    }
    return model(nodes, {"x": [TIME, "N", 4], "h": [1, "N", STATE]}, outputs, parameters)


def streaming() -> onnx.ModelProto:
    """A frame [B, C] joined to a cache [2, B, C], of which a window is taken; the new cache is an output."""
    nodes = [
        helper.make_node("Unsqueeze", ["frame", "zero"], ["row"]),
        helper.make_node("Concat", ["cache", "row"], ["joined"], axis=0),
        helper.make_node("Slice", ["joined", "begin", "end", "zero"], ["new_cache"]),
        helper.make_node("Mul", ["joined", "taps"], ["weighted"]),
        helper.make_node("Add", ["weighted", "frame"], ["shifted"]),
        helper.make_node("ReduceSum", ["shifted", "zero"], ["summed"], keepdims=0),
        helper.make_node("Relu", ["summed"], ["out"]),
    ]
    parameters = [
        parameter("taps", 3, 1, 4),
        numpy_helper.from_array(np.array([0]), "zero"),
        numpy_helper.from_array(np.array([1]), "begin"),
        numpy_helper.from_array(np.array([3]), "end"),
    ]
    return model(
        nodes, {"frame": ["N", 4], "cache": [2, "N", 4]}, {"out": ["N", 4], "new_cache": [2, "N", 4]}, parameters
    )


def heads() -> onnx.ModelProto:
    """Attention over [T, B, C] that keeps the batch apart from the heads."""
    nodes = [
        helper.make_node("Reshape", ["x", "split"], ["parts"]),
        helper.make_node("Transpose", ["parts"], ["q"], perm=[1, 2, 0, 3]),
        helper.make_node("Transpose", ["parts"], ["k"], perm=[1, 2, 3, 0]),
        helper.make_node("MatMul", ["q", "k"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "q"], ["mixed"]),
        helper.make_node("Transpose", ["mixed"], ["back"], perm=[2, 0, 1, 3]),
        helper.make_node("Reshape", ["back", "join"], ["out"]),
    ]
    parameters = [
        numpy_helper.from_array(np.array([0, 0, 2, 4]), "split"),
        numpy_helper.from_array(np.array([0, 0, -1]), "join"),
    ]
    return model(nodes, {"x": [TIME, "N", 8]}, {"out": [TIME, "N", 8]}, parameters)


CASES = {
    "recurrent": (recurrent, {"x": 1, "h": 1}, {"logits": 1, "last": 1, "by_class": 2, "mean": 0}),
    "streaming": (streaming, {"cache": 1}, {"out": 0, "new_cache": 1}),
    "heads": (heads, {"x": 1}, {"out": 1}),
}


def written(made: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "net.onnx"
    onnx.save(made, path)
    return path


def moved(array: np.ndarray, axis: int) -> np.ndarray:
    return np.moveaxis(array, axis, 0)


@pytest.mark.parametrize("name", CASES)
def test_batches_in_front_give_what_the_file_gives(name: str, tmp_path: Path) -> None:
    """ONNX Runtime is the oracle, for the batch that is read and for the others that the graph is then made for."""
    make, axes, outputs = CASES[name]
    made = make()
    graph = mrt.load_model(written(made, tmp_path), batch_axes=axes)
    assert [symbol.name for symbol in graph.outputs] == list(outputs)
    assert not any(isinstance(s.operator, Transpose) and s.operator.order(s.type.rank)[0] for s in graph.operators)
    session = onnxruntime.InferenceSession(made.SerializeToString())
    for batch in (1, 3):
        feeds = {}
        for value in session.get_inputs():
            shape = [batch if isinstance(size, str) else size for size in value.shape]
            feeds[value.name] = RNG.standard_normal(shape).astype(np.float32)
        sized = Rebatch(batch)(graph)
        found = sized.evaluate({key: moved(value, axes.get(key, 0)) for key, value in feeds.items()})
        for array, wanted, axis in zip(found, session.run(list(outputs), feeds), outputs.values(), strict=True):
            np.testing.assert_allclose(array, moved(wanted, axis), rtol=1e-4, atol=1e-5)


def test_a_saved_model_with_states_serves_any_batch(tmp_path: Path) -> None:
    """Calibrated, quantized, saved and compiled for 2 samples; 5 of them run, as in NumPy and as exported to ONNX."""
    make, axes, _ = CASES["streaming"]
    graph = mrt.load_model(written(make(), tmp_path), batch_axes=axes)
    data = [{"frame": RNG.standard_normal((5, 4)), "cache": RNG.standard_normal((5, 2, 4))} for _ in range(4)]
    mrt.quantize(graph, data, runner=NumpyRunner()).save(tmp_path / "saved")
    quantized = mrt.load(tmp_path / "saved")
    integers = quantized.quantize_inputs(data[0])
    wanted = Rebatch(5)(quantized.graph).evaluate(integers)
    compiled = quantized.compile(batch=2)
    for array, other in zip(compiled.run_integer(integers), wanted, strict=True):
        np.testing.assert_array_equal(array, other)
    quantized.to_onnx(tmp_path / "any.onnx", batch="any")
    session = onnxruntime.InferenceSession(tmp_path / "any.onnx")
    for array, other in zip(session.run(None, integers), wanted, strict=True):
        np.testing.assert_array_equal(array, other)
    for real, floats in zip(compiled(data[0]), Rebatch(5)(graph).evaluate(data[0]), strict=True):
        np.testing.assert_allclose(real, floats, atol=0.15)


def test_a_state_has_its_batch_in_front(tmp_path: Path) -> None:
    """With pair and axis said, a state is kept for each sample; without the axis it would be kept for one alone."""
    made = streaming()
    graph = mrt.load_model(written(made, tmp_path), batch_axes={"cache": 1}, states={"cache": "new_cache"})
    session = onnxruntime.InferenceSession(made.SerializeToString())
    frame, cache = (RNG.standard_normal(shape).astype(np.float32) for shape in ((3, 4), (2, 3, 4)))
    wanted, following = session.run(None, {"frame": frame, "cache": cache})
    found, kept = Rebatch(3)(graph).evaluate({"frame": frame, "cache": moved(cache, 1)})
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(kept, moved(following, 1), rtol=1e-5, atol=1e-6)


def test_a_configuration_says_the_axes(tmp_path: Path) -> None:
    """By model.batch_axes, which --set changes as any key; what is no axis is an error that names it."""
    written(streaming(), tmp_path)
    path = tmp_path / "config.yaml"
    path.write_text("model: {path: net.onnx, batch_axes: {cache: 0}}\n")
    config = load_config(path, ["model.batch_axes.cache=1"])
    graph = run_of(config, Workspace(tmp_path / "out"), Reporter()).graph
    assert [symbol.shape for symbol in graph.inputs] == [(1, 4), (1, 2, 4)]
    with pytest.raises(ConfigError, match=r"model\.batch_axes\.cache"):
        load_config(path, ["model.batch_axes.cache=last"])


def test_an_output_alone_has_its_batch_elsewhere(tmp_path: Path) -> None:
    """The error says so, and the axis that it asks for is taken."""
    x = variable("x", TensorType((2, 5, 3)))
    graph = Graph((x,), (apply(Transpose(axes=(1, 0, 2)), (x,), "y"),))
    with pytest.raises(MRTError, match="output y .* axis 0 must be the batch.*batch_axes"):
        mrt.quantize(graph, [RNG.standard_normal((2, 5, 3))])
    data = RNG.standard_normal((2, 5, 3)).astype(np.float32)
    np.testing.assert_array_equal(mrt.batch_first(graph, {"y": 1}).evaluate({"x": data})[0], data)
    titled = replace(graph, output_names={"y": ("hidden",)})
    np.testing.assert_array_equal(mrt.batch_first(titled, {"hidden": 1}).evaluate({"x": data})[0], data)
    with pytest.raises(MRTError, match="hiden, which no input or output is called; there are x, hidden"):
        mrt.batch_first(titled, {"hiden": 1})


def test_an_input_without_a_batch_takes_one_sample_at_a_time() -> None:
    x = variable("x", TensorType((3, 4)))
    graph = mrt.batch_first(Graph((x,), (apply(Transpose(), (x,), "y"),)), {"x": None})
    data = RNG.standard_normal((1, 3, 4)).astype(np.float32)
    np.testing.assert_array_equal(graph.evaluate({"x": data})[0], data.transpose(0, 2, 1))


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        (None, "model.batch_axes"),
        ({"cahce": 1}, "batch axes are given for cahce, which no input or output is called"),
        ({"cache": 3}, "input cache: the batch axis is given as 3; the file has 3 axes"),
        ({"cache": 1, "out": 2}, "the batch axis of out is given as 2"),
        ({"frame": 1}, "the batch must be the same in every input"),
    ],
)
def test_axes_that_do_not_fit_are_told(axes: dict | None, said: str, tmp_path: Path) -> None:
    path = written(streaming(), tmp_path)
    with pytest.raises(MRTError) as told:
        graph = mrt.load_model(path, batch_axes=axes, shapes={"frame": (1, 4), "cache": (2, 1, 4)})
        mrt.quantize(graph, [{"frame": np.zeros((2, 4)), "cache": np.zeros((2, 2, 4))}])
    assert said in str(told.value)

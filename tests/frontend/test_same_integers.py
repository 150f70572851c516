"""The same network from every format has the same integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from mxnet_files import symbol_json, write_params
from onnx import numpy_helper

import mrt
from mrt.frontend.torch import from_torch
from mrt.symbol import Array, Graph

Loader = Callable[[str, str], tuple[Array, Array]]
KWS, RESNET20, RESNET8, MOBILENET = "kws_dscnn", "resnet20_cifar10", "mlperf_resnet8_cifar10", "mobilenet_v1_0.25_224"
GLUON, LENET, DETECTOR = "cifar_resnet20_v1", "lenet_toy", "mtcnn_det1"
FILES = {
    KWS: (f"models/onnx/{KWS}.onnx", f"relay/{KWS}/model.relay", f"relay/{KWS}_folded/model.relay"),
    RESNET20: (
        *(f"models/onnx/{RESNET20}.onnx", f"models/onnx/{RESNET20}.dyn.onnx"),
        *(f"relay/{RESNET20}/model.relay", f"relay/{RESNET20}_frozen/model.relay"),
    ),
    RESNET8: (
        f"models/onnx/{RESNET8}.onnx",
        *("relay/mlperf_resnet8/model.relay", "relay/mlperf_resnet8_folded/model.relay"),
    ),
    MOBILENET: (f"models/onnx/{MOBILENET}.onnx", f"relay/{MOBILENET}/model.relay"),
    GLUON: (f"mxnet/{GLUON}/{GLUON}-symbol.json", f"relay/{GLUON}/model.relay"),
    LENET: (f"mxnet/{LENET}/{LENET}-symbol.json", f"relay/{LENET}/model.relay"),
    DETECTOR: (f"mxnet/{DETECTOR}/{DETECTOR}-symbol.json", f"relay/{DETECTOR}/model.relay"),
}
"""Files of one network each. Relay's folded text of the MXNet network is absent: it has other float weights.
TFLite's files have a test of their own, which compares parameters too: see test_tflite_models.py."""
SHAPES = {GLUON: (1, 3, 32, 32), LENET: (1, 1, 28, 28), DETECTOR: (1, 3, 45, 45)}
"""Of the input `data`, which MXNet's files do not say."""
CALIBRATION, TESTED = 8, 4
QUICKLY = mrt.QuantizationConfig(preset="fast")
"""Neither preset asks which format the file had, and the default takes some four times as long."""


def integers(graph: Graph, calibration: Array, tested: Array) -> list[list[Array]]:
    """The integer outputs of each tested sample. Both arrays have channels first; the network may want them last."""
    (entry,) = graph.inputs
    if entry.shape[1:] != calibration.shape[1:]:
        calibration, tested = (np.moveaxis(x, 1, -1).reshape(-1, *entry.shape[1:]) for x in (calibration, tested))
    model = mrt.quantize(graph, calibration, QUICKLY)
    assert all(symbol.type.is_integer for symbol in model.graph.operators)
    return [model.graph.evaluate(model.quantize_inputs(sample[None])) for sample in tested]


def assert_same(graphs: Sequence[Graph], calibration: Array, tested: Array) -> None:
    first, *others = (integers(graph, calibration, tested) for graph in graphs)
    assert len({sample[0].tobytes() for sample in first}) == TESTED
    for other in others:
        for ours, theirs in zip(first, other, strict=True):
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_array_equal(b, a)


@pytest.mark.sampled(7)
@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_files_of_one_network(name: str, data_folder: Path, load_data: Loader) -> None:
    graphs = []
    for file in FILES[name]:
        shapes = {"data": SHAPES[name]} if file.endswith(".json") else None
        graphs.append(mrt.load_model(data_folder / file, shapes=shapes))
    if name == DETECTOR:
        random = np.random.default_rng(0)
        samples = [random.normal(size=(count, *SHAPES[name][1:])).astype(np.float32) for count in (CALIBRATION, TESTED)]
    else:
        samples = [load_data(name, "calibration")[0][:CALIBRATION], load_data(name, "test")[0][:TESTED]]
    assert_same(graphs, *samples)


def weights(path: Path) -> dict[str, Array]:
    """Weights w0, w1, … and biases b0, b1, … of an ONNX file's layers in order."""
    model = onnx.load(path)
    arrays = {initializer.name: numpy_helper.to_array(initializer) for initializer in model.graph.initializer}
    layers = [node.input[1:] for node in model.graph.node if node.op_type in ("Conv", "Gemm")]
    return {f"{kind}{i}": arrays[name] for i, both in enumerate(layers) for kind, name in zip("wb", both, strict=True)}


def keyword_spotting_in_mxnet(arrays: dict[str, Array], folder: Path) -> Path:
    """A convolution, four depthwise separable ones, the average of the rest, a fully connected layer and softmax."""
    pad = {"mode": "constant", "pad_width": "(0, 0, 0, 0, 4, 5, 1, 1)"}
    nodes: list[tuple[str, str, Sequence[Sequence[int]], dict[str, str]]] = [("null", "data", [], {})]

    def add(op: str, name: str, attributes: dict[str, object], *parameters: str) -> None:
        last = len(nodes) - 1
        nodes.extend(("null", parameter, [], {}) for parameter in parameters)
        places = [last, *range(last + 1, len(nodes))]
        nodes.append((op, name, [[place, 0, 0] for place in places], {k: str(v) for k, v in attributes.items()}))

    add("Pad", "pad", pad)
    for layer in range(9):
        w = arrays[f"w{layer}"]
        kernel, depthwise = w.shape[2:], layer % 2 == 1
        facts = {
            "kernel": kernel,
            "num_filter": len(w),
            "stride": (1, 1) if layer else (2, 2),
            "pad": (1, 1) if depthwise else (0, 0),
            "num_group": len(w) if depthwise else 1,
        }
        add("Convolution", f"conv{layer}", facts, f"w{layer}", f"b{layer}")
        add("Activation", f"relu{layer}", {"act_type": "relu"})
    add("Pooling", "pool", {"kernel": (1, 1), "global_pool": True, "pool_type": "avg"})
    add("FullyConnected", "fc", {"num_hidden": 12}, "w9", "b9")
    add("softmax", "softmax", {})
    path = folder / "kws-symbol.json"
    path.write_text(symbol_json(*nodes))
    (folder / "kws-0000.params").write_bytes(write_params({f"arg:{name}": array for name, array in arrays.items()}))
    return path


def keyword_spotting_in_torch(arrays: dict[str, Array]) -> Graph:
    """The same layers as modules, exported."""
    torch = pytest.importorskip("torch")
    layers: list[object] = [torch.nn.ZeroPad2d((1, 1, 4, 5))]
    for layer in range(9):
        w, depthwise = arrays[f"w{layer}"], layer % 2 == 1
        groups = len(w) if depthwise else 1
        facts = {"stride": 1 if layer else 2, "padding": 1 if depthwise else 0, "groups": groups}
        layers += [torch.nn.Conv2d(w.shape[1] * groups, len(w), w.shape[2:], **facts), torch.nn.ReLU()]
    layers += [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 12), torch.nn.Softmax(dim=-1)]
    network = torch.nn.Sequential(*layers).eval()
    with torch.no_grad():
        for (_, parameter), array in zip(network.named_parameters(), arrays.values(), strict=True):
            parameter.copy_(torch.from_numpy(np.array(array)))
    return from_torch(torch.export.export(network, (torch.zeros(1, 1, 49, 10),)))


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mxnet", "torch"])
def test_a_network_rebuilt_in_another_framework(
    kind: str, data_folder: Path, load_data: Loader, tmp_path: Path
) -> None:
    """The weights of the ONNX file in the layers that a user of the framework writes."""
    path = data_folder / FILES[KWS][0]
    arrays = weights(path)
    if kind == "mxnet":
        file = keyword_spotting_in_mxnet(arrays, tmp_path)
        rebuilt = mrt.load_model(file, shapes={"data": (1, 1, 49, 10)})
    else:
        rebuilt = keyword_spotting_in_torch(arrays)
    samples = load_data(KWS, "calibration")[0][:CALIBRATION], load_data(KWS, "test")[0][:TESTED]
    assert_same([mrt.load_model(path), rebuilt], *samples)

"""Graphs and networks that real MXNet saved give what it gave, and become integers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import mrt
from mrt.frontend import from_mxnet
from mrt.symbol import Graph
from mrt.symbol.mxnet_json import graph_from_json, graph_to_json

NETWORKS = ("cifar_resnet20_v1", "cifar_resnet20_v2", "lenet_toy", "mtcnn_det1", "mtcnn_det3")


def inputs_of(folder: Path) -> dict[str, np.ndarray]:
    """The inputs of a fixture, with a leading sample axis."""
    with np.load(folder / "io.npz") as arrays:
        return {key[3:]: arrays[key] for key in arrays.files if key.startswith("in_")}


def assert_gives(graph: Graph, folder: Path, tolerance: float) -> None:
    """Every output of every sample, within `tolerance` of the larger of 1 and the output's largest value."""
    inputs = inputs_of(folder)
    with np.load(folder / "io.npz") as arrays:
        expected = [arrays[f"out_{index}"] for index in range(len(graph.outputs))]
        assert f"out_{len(graph.outputs)}" not in arrays.files
    for sample in range(len(expected[0])):
        results = graph.evaluate({symbol.name: inputs[symbol.name][sample] for symbol in graph.inputs})
        for output, result, wanted in zip(graph.outputs, results, expected, strict=True):
            assert result.shape == wanted[sample].shape, output.name
            # MXNet sums in float32, so that a small sum of large terms is off by rounding of the large ones.
            atol = tolerance * max(1.0, float(np.abs(wanted).max()))
            np.testing.assert_allclose(result, wanted[sample], rtol=0, atol=atol, err_msg=output.name)


def read_fixture(folder: Path) -> Graph:
    shapes = {name: value.shape[1:] for name, value in inputs_of(folder).items()}
    return from_mxnet(folder / "model-symbol.json", folder / "model-0000.params", shapes)


def test_every_operator_fixture_equals_mxnet(data_folder: Path) -> None:
    folders = sorted((data_folder / "mxnet" / "ops").iterdir())
    assert len(folders) == 49
    for folder in folders:
        assert_gives(read_fixture(folder), folder, 1e-6)


def test_mrts_json_of_mxnets_graphs_means_the_same(data_folder: Path) -> None:
    for folder in sorted((data_folder / "mxnet" / "ops").iterdir()):
        graph = read_fixture(folder)
        again = graph_from_json(graph_to_json(graph), graph.parameters)
        assert str(again) == str(graph)
        feeds = {name: value[0] for name, value in inputs_of(folder).items() if name in graph.by_name}
        for mine, theirs in zip(graph.evaluate(feeds), again.evaluate(feeds), strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_equal_mxnet(data_folder: Path, name: str) -> None:
    folder = data_folder / "mxnet" / name
    shapes = {key: value.shape[1:] for key, value in inputs_of(folder).items()}
    graph = mrt.load_model(folder / f"{name}-symbol.json", shapes=shapes)
    assert [symbol.name for symbol in graph.inputs] == ["data"]
    assert_gives(graph, folder, 1e-5)


def sqnr(real: np.ndarray, integer: np.ndarray) -> float:
    noise = np.square(real.astype(np.float64) - integer).sum()
    return float(10 * np.log10(np.square(real.astype(np.float64)).sum() / noise))


@pytest.mark.exhaustive
@pytest.mark.slow
def test_residual_network_in_integers(
    data_folder: Path, load_data: Callable[[str, str], tuple[np.ndarray, np.ndarray]], tmp_path: Path
) -> None:
    graph = mrt.load_model(
        data_folder / "mxnet" / "cifar_resnet20_v1" / "cifar_resnet20_v1-symbol.json", shapes={"data": (1, 3, 32, 32)}
    )
    calibration = load_data("cifar_resnet20_v1", "calibration")[0][:64]
    x, labels = (part[:100] for part in load_data("cifar_resnet20_v1", "test"))
    model = mrt.quantize(graph, [calibration], mrt.QuantizationConfig(preset="fast"))
    model.save(tmp_path / "model")
    assert mrt.verify(tmp_path / "model").max_bits <= 32
    real = np.concatenate([graph.evaluate({"data": sample[None]})[0] for sample in x[:20]])
    integer = np.asarray(model.compile()(x))
    assert sqnr(real, integer[:20]) > 20
    assert np.mean(integer.argmax(axis=1) == labels) > 0.88


@pytest.mark.slow
@pytest.mark.parametrize(("bits", "decibels"), [(8, 15), (12, 40)])
def test_network_with_prelu_in_integers(data_folder: Path, tmp_path: Path, bits: int, decibels: float) -> None:
    """The face detector's first network, whose PReLUs have a slope for each channel; its box offsets are small."""
    folder = data_folder / "mxnet" / "mtcnn_det1"
    x = inputs_of(folder)["data"][:, 0]
    graph = mrt.load_model(folder / "mtcnn_det1-symbol.json", shapes={"data": (1, *x.shape[1:])})
    assert any(symbol.op == "LeakyReLU" for symbol in graph.operators)
    turned = np.concatenate([x, x[..., ::-1], x[..., ::-1, :], x[..., ::-1, ::-1]])
    model = mrt.quantize(graph, [turned], mrt.QuantizationConfig(activation={"bits": bits}, weight={"bits": bits}))
    model.save(tmp_path / "model")
    assert mrt.verify(tmp_path / "model").max_bits <= 32
    module = model.compile()
    results = module(x)
    for place, result in enumerate(results):
        real = np.concatenate([graph.evaluate({"data": sample[None]})[place] for sample in x])
        assert sqnr(real, np.asarray(result)) > decibels

"""Graphs that real MXNet saved give what real MXNet gave."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from mxnet_files import covered_outputs, read_params

from mrt.errors import UnsupportedOperatorError
from mrt.symbol import TensorType
from mrt.symbol.mxnet_json import graph_from_json, graph_to_json

# What the operators of these graphs are is another matter than what the covered ones give.
LEAST_COVERED = 100


def test_covered_operators_equal_mxnet(data_folder: Path) -> None:
    count = 0
    for folder in sorted((data_folder / "mxnet" / "ops").iterdir()):
        for case in covered_outputs(folder):
            count += 1
            for sample, expected in enumerate(case.expected):
                (result,) = case.graph.evaluate({name: value[sample] for name, value in case.inputs.items()})
                assert result.shape == expected.shape, case.name
                # MXNet sums in float32, so that a small sum of large terms is off by rounding of the large ones.
                atol = 1e-6 * max(1.0, float(np.abs(expected).max()))
                np.testing.assert_allclose(result, expected, rtol=1e-6, atol=atol, err_msg=case.name)
    assert count >= LEAST_COVERED


@pytest.mark.parametrize("name", ["cifar_resnet20_v1", "cifar_resnet20_v2"])
def test_networks_equal_mxnet(data_folder: Path, name: str) -> None:
    folder = data_folder / "mxnet" / name
    parameters = read_params(folder / f"{name}-0000.params")
    arrays = np.load(folder / "io.npz")
    text = (folder / f"{name}-symbol.json").read_text()
    graph = graph_from_json(text, parameters, {"data": TensorType(arrays["in_data"].shape[1:])})
    for sample, expected in zip(arrays["in_data"], arrays["out_0"], strict=True):
        (result,) = graph.evaluate({"data": sample})
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_mrts_json_of_mxnets_graph_means_the_same(data_folder: Path) -> None:
    for folder in sorted((data_folder / "mxnet" / "ops").iterdir()):
        for case in covered_outputs(folder):
            again = graph_from_json(graph_to_json(case.graph), case.graph.parameters)
            feeds = {name: value[0] for name, value in case.inputs.items()}
            assert str(again) == str(case.graph)
            np.testing.assert_array_equal(again.evaluate(feeds)[0], case.graph.evaluate(feeds)[0])


def test_uncovered_operators_are_all_listed(data_folder: Path) -> None:
    text = (data_folder / "mxnet" / "ops" / "reductions" / "model-symbol.json").read_text()
    uncovered = sorted({node["op"] for node in json.loads(text)["nodes"]} & {"prod", "norm"})
    assert uncovered
    with pytest.raises(UnsupportedOperatorError) as error:
        graph_from_json(text, {}, {"data": TensorType((1, 2, 3, 4))})
    for op in uncovered:
        assert f"{op} (1: {op}0)" in str(error.value)

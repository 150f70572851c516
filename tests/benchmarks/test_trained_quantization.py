"""The benchmark of trained quantization: its table, its options, the tensor that is compared, and one network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from loaded import BENCHMARKS, load_benchmark

from mrt.evaluation import compare
from mrt.symbol import Graph, GraphBuilder, Symbol, TensorType
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.fake_quantize import FakeQuantize
from mrt.symbol.operators.integer import Dequantize, Quantize
from mrt.symbol.operators.normalization import Softmax
from mrt.symbol.operators.transform import Flatten

trained = load_benchmark("trained_quantization")


def test_a_line_of_the_table() -> None:
    right, wrong = trained._as_measured(np.eye(4)), trained._as_measured(np.eye(4)[[0, 1, 2, 2]])
    labels = np.arange(4)
    found = compare([{"x": np.zeros((4, 1))}], labels, lambda _: right, lambda _: wrong)
    outcome = trained.Outcome("kws_dscnn", "QDQ", found, 0.5, 0.99999, 118, (0.061, None))
    assert outcome.line() == (
        "| kws_dscnn | QDQ | 4 | 100.00 % | 75.00 % | 75.00 % | 50.000 % | 99.999 % | 118 | 0.06 | - |"
    )
    assert outcome.facts()["top1"] == 0.75
    assert len(outcome.facts()) == len(trained.COLUMNS)


class Network:
    """A graph of one image with a quantizer, perhaps moved, and a softmax whose result is quantized too."""

    def __init__(self) -> None:
        self.builder = GraphBuilder()
        self.image = self.builder.input("x", TensorType((1, 2, 2, 1)))

    def quantized(self, data: Symbol, name: str, scale: float, zero: int) -> Symbol:
        inputs = [data, self.number(scale), self.builder.parameter("zero", np.int32(zero))]
        return self.builder.apply(Quantize(a_min=0, a_max=255, dtype="uint8"), inputs, name)

    def dequantized(self, data: Symbol, name: str, scale: float, zero: int) -> Symbol:
        inputs = [data, self.number(scale), self.builder.parameter("zero", np.int32(zero))]
        return self.builder.apply(Dequantize(), inputs, name)

    def number(self, value: float) -> Symbol:
        return self.builder.parameter("number", np.float32(value))

    def graph(self, output: Symbol) -> Graph:
        return self.builder.graph([output])


def test_the_last_quantizer_before_a_softmax_is_compared() -> None:
    """Its integers are those that the engine gives, as real numbers; where they are moved first, in their new shape."""
    net = Network()
    first = net.dequantized(net.quantized(net.image, "first", 0.5, 3), "first_real", 0.5, 3)
    second = net.quantized(net.builder.apply(Relu(), [first]), "second", 0.25, 7)
    real = net.dequantized(net.builder.apply(Flatten(), [second]), "second_real", 0.25, 7)
    softmax = net.builder.apply(Softmax(), [real], "softmax")
    graph = net.graph(net.dequantized(net.quantized(softmax, "third", 0.5, 0), "third_real", 0.5, 0))
    probe = trained.probe_of(graph)
    assert probe.tensor == "second"
    assert [symbol.name for symbol in probe.graph.outputs] == ["second_real"]
    np.testing.assert_array_equal(probe.dequantize(np.float64([[[[7], [8]], [[9], [3]]]])), [[0, 0.25, 0.5, -1]])
    assert probe.step == 0.25


def test_a_fake_quantize_gives_real_numbers() -> None:
    net = Network()
    limits = [net.number(value) for value in (-1, 1, -1, 2)]
    graph = net.graph(net.builder.apply(FakeQuantize(levels=4), [net.image, *limits], "rounded"))
    probe = trained.probe_of(graph)
    assert (probe.tensor, probe.step) == ("rounded", 1)
    np.testing.assert_array_equal(probe.dequantize(np.float64([0.5])), [0.5])


def test_a_network_that_rounds_nothing_has_no_such_tensor() -> None:
    net = Network()
    with pytest.raises(SystemExit, match="rounds no tensor"):
        trained.probe_of(net.graph(net.builder.apply(Relu(), [net.image])))


@pytest.mark.parametrize(
    ("option", "found", "needed"),
    [
        ("--networks", "vgg", "resnet20_cifar10"),
        ("--forms", "qdq", "NNCF, QDQ, QOperator"),
        ("--samples", "0", "from 1"),
    ],
)
def test_a_wrong_value_is_one_line(option: str, found: str, needed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        trained._parser().parse_args([f"{option}={found}"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert option in line and f"'{found}' was found" in line and needed in line and line.endswith("is needed")


@pytest.mark.parametrize("flags", ["avx2 yes, avx_vnni no, avx512_vnni no, amx_int8 no", ""])
def test_engines_that_saturate_are_no_reference(flags: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRT_DATA", "/data")
    monkeypatch.setattr(trained, "machine", lambda: flags)
    assert "saturates" in trained.why_not()
    monkeypatch.setattr(trained, "machine", lambda: "avx512_vnni yes")
    assert trained.why_not() == ""
    monkeypatch.delenv("MRT_DATA")
    assert "MRT_DATA" in trained.why_not()


@pytest.mark.slow
def test_a_network_is_as_accurate_as_its_own_engine_has_it(data_folder: Path, tmp_path: Path) -> None:
    """The network of keywords, in every form: within 0.3 points of its engine on all test data."""
    for module in {name for form in trained.FORMS.values() for name in form.needs}:
        pytest.importorskip(module)
    if not any(flag in trained.machine() for flag in trained.SAFE):
        pytest.skip("this processor saturates pairs of products of uint8 and int8")
    file = tmp_path / "out.json"
    options = ["--networks", "kws_dscnn", "--rounds", "1", "--seconds", "0.01", "--json", str(file)]
    command = [sys.executable, str(BENCHMARKS / "trained_quantization.py"), *options]
    environment = {**os.environ, "MRT_DATA": str(data_folder)}
    child = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert child.returncode == 0, child.stderr
    rows = json.loads(file.read_text())["rows"]
    assert [line["form"] for line in rows] == [*trained.FORMS]
    for line in rows:
        assert line["samples"] == 800
        assert abs(line["top1"] - line["engine_top1"]) <= 0.003
        assert line["agreement"] > 0.99
        assert line["within_one"] > 0.85

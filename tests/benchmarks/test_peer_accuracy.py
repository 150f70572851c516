"""The comparison of accuracy with other tools: what is tried, which row is best, and a run without them."""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from loaded import BENCHMARKS, load_benchmark
from onnx import helper, numpy_helper

import mrt
from mrt.symbol import GraphBuilder, TensorType
from mrt.symbol.operators.activation import Relu, Sigmoid
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.normalization import BatchNorm
from mrt.symbol.operators.pooling import Pooling

makers = load_benchmark("makers")
peers = load_benchmark("peer_accuracy")
tried = load_benchmark("peer_choices")
float_onnx = load_benchmark("float_onnx")
in_turns = load_benchmark("in_turns")
ROW = peers.Row("net", "W8A8", "NNCF", "NNCF", "mixed", 8, 4, 0.5, 0.25, 0.75, [20.0, None], 3.4, None, 0.01)


def test_the_row_with_the_least_error_is_shown_for_each_network_widths_and_title() -> None:
    worse, better = replace(ROW, how="a", error=0.02), replace(ROW, how="b", error=0.001)
    apart = [replace(ROW, widths="W4A8"), replace(ROW, title="NNCF, accuracy-aware"), replace(ROW, network="other")]
    assert peers.best([worse, ROW, better, *apart]) == [better, *apart]
    exact = replace(ROW, how="c", error=0.0)
    assert peers.best([better, exact]) == [exact]


def test_a_later_row_takes_the_place_of_an_earlier_one() -> None:
    others = [replace(ROW, how="performance"), replace(ROW, samples=5)]
    again = replace(ROW, error=0.5)
    assert peers.merged([ROW, *others], [again]) == [again, *others]


def test_a_line_of_the_table() -> None:
    assert in_turns.row(replace(ROW, quantizers=7).cells) == (
        "| net | W8A8 | NNCF | mixed, 7 quantizers kept | 50.00 % | 25.00 % | 75.00 % | 20.00 / exact dB | 3 |"
    )
    unlabelled = replace(ROW, float_top1=None, top1=None)
    assert len(unlabelled.cells) == len(peers.COLUMNS) and unlabelled.cells[4:6] == ["-", "-"]
    assert peers.table([ROW]).splitlines()[-1] == in_turns.row(ROW.cells)


def test_figures_are_those_of_all_samples() -> None:
    """Against numbers made by hand: two outputs, of which the second is exact; two of three classes stay."""
    reference = [np.array([[[3.0, 4.0]], [[1.0, 0.0]], [[0.0, 2.0]]]), np.ones((3, 1, 1))]
    found = [np.array([[[3.0, 5.0]], [[0.0, 1.0]], [[0.0, 2.0]]]), np.ones((3, 1, 1))]
    figures = peers.scored(reference, found, np.array([1, 0, 0]))
    assert (figures["float_top1"], figures["top1"], figures["agreement"]) == (2 / 3, 1 / 3, 2 / 3)
    assert figures["sqnr"] == [pytest.approx(10 * math.log10(30 / 3)), None]
    assert figures["error"] == pytest.approx(3 / 33)
    assert peers.scored(reference, found, None)["top1"] is None


def test_every_calibration_preset_and_correction_is_tried() -> None:
    found = tried.choices(tried.TOOLS.values(), ["quantize.weight.bits=6", "calibrate.method=mse"])
    assert found[0].arguments == {"options": {"weight": {"bits": 6}}, "calibrate": {"method": "mse"}}
    ort = {
        (choice.arguments["calibration"], choice.arguments["symmetric"]) for choice in found if "ort" in choice.maker
    }
    assert ort == {(name, symmetric) for name in ("MinMax", "Entropy", "Percentile") for symmetric in (False, True)}
    nncf = {tuple(choice.arguments.values()) for choice in found if choice.maker == "openvino-nncf"}
    assert len(nncf) == 2 * 3 * 2 and ("mixed", "accurate", True) in nncf
    assert {choice.maker for choice in found} <= set(makers.MAKERS)
    assert {choice.outputs for choice in found} <= set(makers.MAKERS)


def test_widths_of_8_bits_are_not_set() -> None:
    own, *_ = tried.choices([tried.OURS], ["quantize.activation.quantizer=affine"])
    assert own.arguments_for("W8A8")["options"] == {"activation": {"quantizer": "affine"}}
    assert own.arguments_for("W4A8")["options"] == {"activation": {"quantizer": "affine"}, "weight": {"bits": 4}}
    assert own.arguments_for("W4A4")["options"]["activation"] == {"quantizer": "affine", "bits": 4}
    (other, *_) = tried.choices(["ONNX Runtime"], [])
    assert other.arguments_for("W4A8") == {**other.arguments, "weight_bits": 4}
    assert tried.widths_of("w4a8") == "W4A8"
    for wrong in ("8", "A8W8", "W4", "W4A8.5"):
        with pytest.raises(argparse.ArgumentTypeError, match="are needed, such as W4A8"):
            tried.widths_of(wrong)
    with pytest.raises(SystemExit, match=r"prepare: quantize\.KEY=VALUE"):
        tried.own_options(["prepare.split=relu"])


# Networks


def dense() -> onnx.ModelProto:
    """Three classes of four numbers, in probabilities; the batch is open."""
    weight = numpy_helper.from_array(np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["scores"]), helper.make_node("Softmax", ["scores"], ["y"], axis=1)]
    values = (("x", ["batch", 4]), ("y", ["batch", 3]))
    given, result = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in values)
    graph = helper.make_graph(nodes, "g", [given], [result], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_softmaxes_at_the_end_are_cut_off_and_others_stay() -> None:
    model = float_onnx.logits_of(float_onnx.for_one_sample(dense()))
    assert [node.op_type for node in model.graph.node] == ["MatMul"]
    assert [value.name for value in model.graph.output] == ["scores"]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 1
    model = dense()
    model.graph.node.append(helper.make_node("Relu", ["y"], ["end"]))
    model.graph.output[0].name = "end"
    assert [node.op_type for node in float_onnx.logits_of(model).graph.node] == ["MatMul", "Softmax", "Relu"]


def test_a_residual_network_of_another_format_is_written_as_onnx() -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed; it runs what is written")
    random = np.random.default_rng(1)
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 2, 6, 6)))

    def parameter(name: str, *shape: int) -> Any:
        return builder.parameter(name, random.uniform(0.5, 1.5, shape).astype(np.float32))

    convolution = Convolution((3, 3), 4, (2, 2), (1, 1), (1, 1), 2, no_bias=True)
    first = builder.apply(convolution, [x, parameter("w", 4, 1, 3, 3)], "first")
    norms = [parameter(name, 4) for name in ("gamma", "beta", "mean", "variance")]
    second = builder.apply(Relu(), [builder.apply(BatchNorm(eps=1e-3, fix_gamma=False), [first, *norms], "norm")], "r")
    total = builder.apply(ElemwiseAdd(), [first, second], "sum")
    pooled = builder.apply(Pooling(kernel=(1, 1), pool_type="avg", global_pool=True), [total], "pooled")
    end = builder.apply(FullyConnected(3), [pooled, parameter("v", 3, 4), parameter("b", 3)], "end")
    graph = builder.graph([end])
    session = onnxruntime.InferenceSession(float_onnx.written(graph).SerializeToString())
    sample = random.normal(size=(1, 2, 6, 6)).astype(np.float32)
    (expected,) = graph.evaluate({"x": sample})
    np.testing.assert_allclose(session.run(None, {"x": sample})[0], expected, rtol=1e-5)
    sigmoid = builder.graph([builder.apply(Sigmoid(), [end], "s")])
    with pytest.raises(mrt.MRTError, match=r"s \(sigmoid\): cannot be written as ONNX"):
        float_onnx.written(sigmoid)


# A run


class Here:
    """A store that makes files in this process, once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: dict[str, Path] = {}

    def get(self, maker: str, **arguments: Any) -> Path:
        key = f"{maker} {arguments}"
        if key not in self.made:
            place = self.folder / str(len(self.made))
            place.mkdir(parents=True)
            makers.MAKERS[maker].make(place, **arguments)
            (place / in_turns.MADE).write_text('{"seconds": 1.5}')
            self.made[key] = place
        return self.made[key]


def files(folder: Path) -> list[str]:
    """A network with its data, as options of the command line."""
    random = np.random.default_rng(2)
    model = dense()
    onnx.save(model, folder / "dense.onnx")
    for name, count in (("known", 12), ("others", 6)):
        x = random.normal(size=(count, 4)).astype(np.float32)
        labels = (x @ numpy_helper.to_array(model.graph.initializer[0])).argmax(axis=1)
        np.savez(folder / f"{name}.npz", x=x, y=labels)
    given = {"--model": "dense.onnx", "--calibration-data": "known.npz", "--test-data": "others.npz"}
    return [word for option, file in given.items() for word in (option, str(folder / file))]


def run(arguments: list[str], store: Here) -> int:
    status: int = peers.measure_all(peers.parser().parse_args(["--accuracy", *arguments]), store)
    return status


def test_it_runs_without_the_other_tools(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    file = tmp_path / "out.json"
    arguments = [*files(tmp_path), "--widths", "W8A8,W2A8", "--calibration", "8", "--json", str(file)]
    assert run(arguments, Here(tmp_path / "work")) == 0
    said = capsys.readouterr().out
    assert "NNCF: left out, nncf and openvino not installed; pip install -e '.[benchmarks]'" in said
    assert "ONNX Runtime: left out, onnxruntime and sympy not installed" in said
    eight, two = (peers.Row(**each) for each in json.loads(file.read_text())["rows"])
    assert [in_turns.row(each.cells) for each in (eight, two)] == said.splitlines()[-2:]
    assert (eight.samples, eight.calibration, eight.float_top1, eight.seconds) == (6, 8, 1.0, 1.5)
    assert eight.sqnr[0] > 35 > two.sqnr[0] + 15  # 6 dB a bit would be 36
    assert peers.merged(peers.earlier_rows(file), [replace(two, error=0.5)])[1].error == 0.5
    file.write_text("[]")
    with pytest.raises(SystemExit, match="a file that this program wrote, or a new one, is needed"):
        run(arguments, Here(tmp_path / "again"))


@pytest.mark.slow
def test_the_best_of_onnx_runtime_stands_beside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for module in ("onnxruntime", "sympy"):
        pytest.importorskip(module, reason=f"{module} is not installed; ONNX Runtime's quantizer needs it")
    arguments, store = [*files(tmp_path), "--tools", "onnxruntime"], Here(tmp_path / "work")
    assert run([*arguments, "--all"], store) == 0
    lines = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| dense")]
    assert len(lines) == 6
    ratios = {line[3]: float(line[7].removesuffix(" dB")) for line in lines}
    assert run(arguments, store) == 0
    (best,) = (line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| dense"))
    assert float(best[7].removesuffix(" dB")) == max(ratios.values())


def test_networks_need_their_data(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MRT_DATA", raising=False)
    assert run(["--tools", "mrt"], Here(Path("nowhere"))) == 0
    assert capsys.readouterr().out.startswith("skipped: the variable MRT_DATA is not set")
    with pytest.raises(SystemExit, match="--calibration-data and --test-data are needed"):
        run(["--model", "x.onnx"], Here(Path("nowhere")))


def test_it_is_an_option_of_the_peers() -> None:
    asked = [sys.executable, "peers.py", "--accuracy", "--widths", "A8"]
    child = subprocess.run(asked, cwd=BENCHMARKS, capture_output=True, text=True)
    assert child.returncode == 2
    assert child.stderr == (
        "peers.py: argument --widths: 'A8' was found; bits of weights and activations are needed, such as W4A8\n"
    )

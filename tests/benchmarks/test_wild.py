"""The table of models that people have: what its figures are of, what is kept, what a failure leaves."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from loaded import load_benchmark
from onnx import helper

makers = load_benchmark("makers")
models = load_benchmark("wild_models")
inputs = load_benchmark("wild_inputs")
in_turns = load_benchmark("in_turns")
wild_makers = sys.modules["wild_makers"]
wild = load_benchmark("wild")
Part, Row = models.Part, wild.Row
NOTHING_SET: dict[str, Any] = {key: {} for key in wild_makers.READING}


def test_every_model_can_be_asked_for_and_its_inputs_made() -> None:
    assert len(models.BY_NAME) == len(models.MODELS)
    for model in models.MODELS:
        json.dumps(asdict(model))
        for name, feed in model.feeds.items():
            if np.prod(feed.shape) < 10_000:  # a scene of many points takes a moment, and is made in another test
                made = inputs.samples_of_kind(feed.kind, feed.shape, feed.options, 2, 3)
                assert len(made) == 2 and np.isfinite(made).all() and (made[0] != made[1]).any()
                wanted = model.shapes.get(name)
                assert wanted is None or made.shape[1:] == (wanted if feed.whole else wanted[1:])


@pytest.mark.parametrize("kind", ["picture", "page", "text_line"])
def test_images_have_structure_and_are_the_same_for_the_same_seed(kind: str) -> None:
    options = {"low": -1.0, "high": 1.0}
    made, again = (inputs.samples_of_kind(kind, (40, 56), options, 3, 5) for _ in range(2))
    np.testing.assert_array_equal(made, again)
    assert made.shape == (3, 3, 40, 56) and made.dtype == np.float32 and -1 <= made.min() < made.max() <= 1
    # Neighbours are alike, which those of white noise are not: their difference has a small part of the variance.
    assert np.diff(made, axis=3).var() < 0.6 * 2 * made.var()
    last = inputs.samples_of_kind(kind, (40, 56), {**options, "channels_last": True}, 3, 5)
    np.testing.assert_array_equal(last.transpose(0, 3, 1, 2), made)
    alone = inputs.samples_of_kind(kind, (40, 56), options, 1, 5)
    np.testing.assert_array_equal(alone[0], made[0])


def test_parts_of_an_output_have_figures_of_their_own() -> None:
    """Against the definition, 10 log10 of the energies."""
    wanted = np.arange(1.0, 25).reshape(2, 1, 6, 2)  # two samples of [1, 6, 2]
    found = wanted.copy()
    found[:, :, 4:] += 0.5
    parts = [Part("boxes", 0, 1, 0, 4), Part("scores", 0, 1, 4), Part("even", 1, -1, 0, None, 2)]
    ratios = wild.ratios([wanted, wanted, wanted], [found, found.reshape(2, 12), wanted + 1], parts)
    scores = 10 * np.log10((wanted[:, :, 4:] ** 2).sum() / (0.25 * 8))
    even = 10 * np.log10((wanted[..., 0] ** 2).sum() / (0.25 * 4))
    whole = 10 * np.log10((wanted**2).sum() / 24)
    assert ratios == pytest.approx({"0 boxes": wild.EXACT, "0 scores": scores, "1 even": even, "2": whole})


def row(name: str = "net", **sqnr: dict[str, float]) -> Any:
    return Row(name, ["read", "quantize", "verify"], True, sqnr)


def test_the_better_of_the_others_is_what_counts() -> None:
    assert row(a={"MRT": 30.0, "NNCF": 20.0, "ONNX Runtime": 29.0}).wins is True
    assert row(a={"MRT": 28.0, "NNCF": 20.0, "ONNX Runtime": 29.0}).wins is False
    assert row(a={"MRT": 28.0, "NNCF": 20.0}, b={"MRT": 28.0, "NNCF": 36.5}).wins is False  # the mean of the parts
    assert row(a={"NNCF": 20.0}).wins is False and row(a={"MRT": 20.0}).wins is None


def test_a_wheel_that_cannot_be_had_is_a_row_that_says_so(tmp_path: Path) -> None:
    class Failing:
        def get(self, maker: str, **arguments: Any) -> Path:
            raise in_turns.ChildError("wheel: nudenet==3.4.2 cannot be had: no index")

    asked = Namespace(calibration=2, samples=1, wheels=tmp_path, peers=True)
    found = wild.measure(models.BY_NAME["nudenet"], asked, Failing())
    assert found.errors == {"model": "wheel: nudenet==3.4.2 cannot be had: no index"} and not found.runs
    assert found.cells[1:5] == ["no", "no", "no", "-"]
    missing = models.Model("x", models.Network("x", ("a_package_of_nobody",)), {})
    assert "a_package_of_nobody" in wild.measure(missing, asked, Failing()).errors["model"]


def test_what_fails_says_how_far_it_came(tmp_path: Path) -> None:
    class Stopping:
        def get(self, maker: str, **arguments: Any) -> Path:
            if maker == "wild-model":
                raise in_turns.ChildError("quantize: UnsupportedOperatorError: no integer form")
            np.savez(tmp_path / makers.OUTPUTS_FILE, np.ones((1, 1, 2)))
            return tmp_path

    asked = Namespace(calibration=2, samples=1, wheels=tmp_path, peers=False)
    found = wild.measure(models.BY_NAME["nudenet"], asked, Stopping())
    assert found.done == ["read"] and found.errors == {"MRT": "quantize: UnsupportedOperatorError: no integer form"}


def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *more: str) -> Callable[[], int]:
    monkeypatch.setattr(sys, "argv", ["wild.py", "--json", str(tmp_path / "rows.json"), "--work", str(tmp_path), *more])

    def run() -> int:
        with pytest.raises(SystemExit) as ended:
            wild.main()
        return int(ended.value.code or 0)

    return run


def test_rows_that_are_known_are_taken_and_failed_ones_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[str] = []

    def measured(model: Any, arguments: Namespace, store: Any) -> Any:
        made.append(model.name)
        if model.name == "lstm" and made.count("lstm") == 1:
            return Row("lstm", ["read"], errors={"MRT": "quantize: no"})
        return row(model.name, a={"MRT": 30.0, "NNCF": 31.0})

    monkeypatch.setattr(wild, "measure", measured)
    monkeypatch.setattr(wild, "machine", lambda: "a machine")
    run = command(monkeypatch, tmp_path, "--only", "unet,lstm", "--markdown", str(tmp_path / "table.md"))
    assert run() == 1 and made == ["unet", "lstm"]
    assert "- lstm, MRT: quantize: no" in (tmp_path / "table.md").read_text()
    assert run() == 0 and made == ["unet", "lstm", "lstm"]
    printed = capsys.readouterr().out
    assert "1 of 2 run; in 0 of 1 MRT's SQNR" in printed and "2 of 2 run; in 0 of 2 MRT's SQNR" in printed
    assert "| unet | yes | yes | yes | yes | 30.0 / - / 31.0 |" in (tmp_path / "table.md").read_text()
    document = f"# Models\n\n{wild.BEGIN}old\n{wild.END}\nThe end.\n"
    (tmp_path / "table.md").write_text(document)
    assert run() == 0
    written = (tmp_path / "table.md").read_text()
    assert written.startswith("# Models\n") and written.endswith("\nThe end.\n") and "| unet |" in written
    assert "\nold\n" not in written and made == ["unet", "lstm", "lstm"]  # from the rows of the file
    (tmp_path / "rows.json").write_text('{"rows": [{"found": 1}]}')
    monkeypatch.undo()
    with pytest.raises(SystemExit, match="a file that this program wrote"):
        wild.earlier_rows(tmp_path / "rows.json")


def test_a_model_with_open_sizes_is_fixed_for_the_others(tmp_path: Path) -> None:
    data = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", "length"])
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", "length"])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [data], [result])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "a.onnx")
    wild_makers._pin(tmp_path / "a.onnx", tmp_path / "b.onnx", {"x": (1, 3)})
    session = onnxruntime.InferenceSession(tmp_path / "b.onnx")
    assert session.get_inputs()[0].shape == [1, 3]
    np.testing.assert_array_equal(session.run(None, {"x": np.float32([[-1, 0, 2]])})[0], [[0, 0, 2]])


def test_inputs_that_are_fixed_are_fed_to_the_others_only(tmp_path: Path) -> None:
    (tmp_path / wild_makers.CASE).write_text(json.dumps({"values": {"rate": 16000}, "batch_axes": {"h": 1}}))
    states = np.arange(12.0).reshape(2, 3, 1, 2)  # of each sample [3, 1, 2], whose batch is axis 1
    whole = {makers.WHOLE + "rate": np.full(2, 16000), makers.WHOLE + "h": states}
    np.savez(tmp_path / "some.npz", **{"x": np.ones((2, 3)), **whole})
    (first, _) = makers.one_by_one(makers.samples_of(tmp_path / "some.npz"))
    assert first["rate"].shape == () and first["rate"] == 16000 and first["h"].shape == (3, 1, 2)
    found = wild_makers.feeds_for_mrt(tmp_path, "some.npz")
    assert [list(each) for each in found] == [["x", "h"], ["x", "h"]]
    np.testing.assert_array_equal(found[1]["h"], states[1].reshape(1, 3, 2))


def test_a_model_runs_through_all_steps(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Reading, quantizing, verifying, compiling and running, against NumPy's float."""
    weight = np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)
    data = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 6])
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 4])
    made = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [data],
        [result],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    case, integers, module, outputs = (tmp_path / name for name in ("case", "integers", "module", "outputs"))
    for folder in (case, integers, module, outputs):
        folder.mkdir()
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), case / "source.onnx")
    (case / wild_makers.CASE).write_text(json.dumps({"file": "source.onnx", **NOTHING_SET}))
    x = np.random.default_rng(2).normal(size=(8, 6)).astype(np.float32)
    for file in (makers.CALIBRATION_FILE, makers.TEST_FILE):
        np.savez(case / file, x=x)
    wild_makers.quantize(integers, str(case))
    wild_makers.compile_model(module, str(integers))
    wild_makers.run(outputs, str(case), str(integers), str(module), compared=2)
    facts = json.loads((outputs / wild_makers.FACTS).read_text())
    assert facts["verified"] and facts["equal"]
    (found,) = wild._outputs(outputs)
    assert wild.ratios([(x @ weight)[:, None]], [found], [])["0"] > 30
    (case / wild_makers.CASE).write_text(json.dumps({"file": "missing.onnx", **NOTHING_SET}))
    with pytest.raises(SystemExit, match="read: ModelFileError: .*does not exist"):
        wild_makers.quantize(integers, str(case))


def test_whole_samples_are_fed_with_all_their_axes() -> None:
    states, x = np.arange(12).reshape(3, 2, 1, 2), np.arange(6).reshape(3, 2)
    feeds = list(makers.one_by_one({"x": x, makers.WHOLE + "state": states}))
    assert [each["state"].shape for each in feeds] == [(2, 1, 2)] * 3 and [each["x"].shape for each in feeds] == [
        (1, 2)
    ] * 3
    np.testing.assert_array_equal(feeds[2]["state"], states[2])

"""A trained transformer in integers from its input to its logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import mrt
from mrt.config import load_config
from mrt.pipeline import run_pipeline
from mrt.progress import Reporter

CONFIG = Path(__file__).parents[2] / "benchmarks" / "configs" / "kwt1_speechcommands12.yaml"


@pytest.mark.exhaustive
@pytest.mark.slow
def test_keyword_transformer(data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRT_DATA", str(data_folder))
    with (tmp_path / "log").open("w") as log:
        config = load_config(CONFIG, ["data.calibration.samples=64", "evaluate.check=4"])
        summary = run_pipeline(config, last="evaluate", output=tmp_path / "out", report=Reporter(Console(file=log)))
    assert summary is not None
    assert summary["bit_exact_samples"] == 4
    assert summary["float"]["top1"] - summary["integer"]["top1"] <= 0.01
    assert summary["sqnr_db"] >= 25
    assert mrt.verify(tmp_path / "out").max_bits <= 32
    model = mrt.load(tmp_path / "out")
    assert model.postprocess is None
    assert {symbol.type.is_integer for symbol in model.graph.symbols} == {True}
    assert np.prod(model.graph.outputs[0].shape) == 12

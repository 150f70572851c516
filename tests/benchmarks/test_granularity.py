"""The granularity benchmark: its table, its options, and one network from end to end."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from loaded import load_benchmark

granularity = load_benchmark("granularity")
RIGHT, NEAR = np.array([[1.0, 0.0]]), np.array([[1.0, 0.1]])


def test_ratios_are_over_one_scale_per_tensor() -> None:
    case = granularity.Case("resnet20", 1, 1)
    times = {"float": (9.0, RIGHT), "layer": (2.0, NEAR), "16": (2.3, NEAR), "1": (5.0, RIGHT)}
    found = {name: granularity.Measured([ms / 1e3], outputs) for name, (ms, outputs) in times.items()}
    assert granularity.line(case, ["16", "1"], found) == (
        "| resnet20 | 1 | 1 | 2.00 | 2.30 | 5.00 | 1.15 | 2.50 | 0.9950 | 0.9950 | 1.0000 |"
    )
    del found["16"]
    assert granularity.line(case, ["16", "1"], found) == (
        "| resnet20 | 1 | 1 | 2.00 | - | 5.00 | - | 2.50 | 0.9950 | - | 1.0000 |"
    )


@pytest.mark.parametrize(
    ("option", "found", "needed"),
    [
        ("--models", "resnet50", "mobilenetv1_025, resnet20"),
        ("--steps", "0", "from 1 on"),
        ("--steps", "layer", "from 1 on"),
        ("--threads", "0", "from 1 on"),
        ("--isa", "sse2", "native, vnni, avx2"),
    ],
)
def test_a_wrong_value_is_one_line(option: str, found: str, needed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        granularity._parser().parse_args([f"{option}={found}"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert option in line and f"'{found}' was found" in line and needed in line and line.endswith("is needed")


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_network_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A smaller one than those of the benchmark."""
    monkeypatch.setattr(granularity, "MODELS", ("resnet8",))
    file = tmp_path / "out.json"
    options = ["--steps", "4", "--rounds", "1", "--seconds", "0.01", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["granularity.py", "--models", "resnet8", *options])
    with pytest.raises(SystemExit) as ended:
        granularity.main()
    told = capsys.readouterr()
    assert (ended.value.code, told.err) == (0, "")
    rows = json.loads(file.read_text())["rows"]
    assert [line["granularity"] for line in rows] == ["layer", {"channel": 4}]
    (line,) = [line for line in told.out.splitlines() if line.startswith("| resnet8")]
    layer, split = (float(cell) for cell in line.strip("| ").split(" | ")[-2:])
    assert 0.9 < layer < split  # narrow channels are told apart better

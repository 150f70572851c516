"""The benchmark of a second core: its table, its options, and one network from end to end."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest
from loaded import load_benchmark
from small_onnx import save_small_network

two_cores = load_benchmark("two_cores")


def test_how_many_times_as_much_is_done_in_the_time_of_one() -> None:
    found = {"one thread": 10.0, "two processes": 12.5, "two threads": 6.25}
    expected = "| a | 4 | half | 10.00 | 12.50 | 6.25 | 1.60 | 1.60 |"
    assert two_cores.line(two_cores.Case("a", 1, 4), "half", found) == expected


def test_processes_are_measured_at_the_same_time() -> None:
    together = threading.Barrier(2, timeout=60)

    class Waiting:
        def measure(self, seconds: float) -> list[float]:
            together.wait()
            return [seconds]

    assert two_cores.SideBySide([Waiting(), Waiting()]).measure(0.5) == [0.5, 0.5]


@pytest.mark.parametrize(("option", "found"), [("--models", "resnet51"), ("--batch", "0"), ("--isa", "sse2")])
def test_options_are_checked(option: str, found: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        two_cores._parser().parse_args([option, found])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert option in line and found in line


@pytest.mark.slow
def test_a_network_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, network = tmp_path / "figures.json", str(save_small_network(tmp_path / "small.onnx"))
    options = ["--models", network, "--rounds", "1", "--seconds", "0.01", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["two_cores.py", *options])
    with pytest.raises(SystemExit) as ended:
        two_cores.main()
    told = capsys.readouterr()
    assert (ended.value.code, told.err) == (0, "")
    (found,) = json.loads(file.read_text())["rows"]
    assert (found["model"], found["batch"]) == (network, 1)
    for name in ("one thread", "two processes", "two threads"):
        assert found["median_ms"][name] >= found["tenth_ms"][name] > 0
    *_, half, tenth = told.out.splitlines()
    assert half.startswith(f"| {network} | 1 | half | ")
    assert tenth.startswith(f"| {network} | 1 | a tenth | ")

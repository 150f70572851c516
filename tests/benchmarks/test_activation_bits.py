"""What data of more bits costs: one layer from end to end, whose data need the bits that its name says."""

from __future__ import annotations

import sys

import pytest
from loaded import load_benchmark

activation_bits = load_benchmark("activation_bits")


@pytest.mark.parametrize("layer", activation_bits.LAYERS)
def test_only_the_width_of_the_data_differs(layer: str) -> None:
    found = [activation_bits.network(layer, width) for width in activation_bits.WIDTHS]
    assert len({tuple(symbol.op for symbol in graph.operators if symbol.op != "Cast") for graph, _ in found}) == 1
    read = [next(s for s in graph.operators if s.op == "Convolution").inputs[0].dtype for graph, _ in found]
    assert read == ["uint8", "int16", "int16", "int32"]


@pytest.mark.exhaustive
def test_a_table_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--rounds", "1", "--runs", "1", "--layers", "fully connected"]
    monkeypatch.setattr(sys, "argv", ["activation_bits.py", *options])
    activation_bits.main()
    told = capsys.readouterr().out
    assert "| fully connected | " in told and "(1.00)" in told

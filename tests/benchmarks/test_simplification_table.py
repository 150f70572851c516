"""The simplification benchmark: its table, its options, and one network."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from loaded import load_benchmark

simplification = load_benchmark("simplification")
DIGITS = Path(__file__).resolve().parents[2] / "configs" / "digits.yaml"


def test_the_simplified_network_is_no_longer_and_has_notes() -> None:
    models = simplification.quantized(DIGITS, 20)
    plain, fewer = (models[name] for name in (simplification.AS_EXPANDED, simplification.SIMPLIFIED))
    assert len(fewer.graph.operators) <= len(plain.graph.operators) and len(fewer.notes) > len(plain.notes)
    counts = f"{len(plain.graph.operators)} | {len(fewer.graph.operators)}"
    milliseconds = {simplification.AS_EXPANDED: 1.25, simplification.SIMPLIFIED: 0.5}
    assert simplification.line("digits", models, milliseconds) == f"| digits | {counts} | 1.250 | 0.500 |"


@pytest.mark.parametrize("option", ["--samples", "--calls"])
def test_a_number_below_one_is_one_line(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["simplification.py", option, "0"])
    with pytest.raises(SystemExit) as stopped:
        simplification.main()
    said = capsys.readouterr().err
    assert stopped.value.code == 2 and said.count("\n") == 1 and "from 1 on" in said

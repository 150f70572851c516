"""The summary of an evaluation as a table."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from mrt.progress import Reporter
from mrt.report.summary import summary_table


def test_the_table_shows_the_summary() -> None:
    written = StringIO()
    summary = {
        "model": "net", "samples": 8, "float": {"top1": 0.75}, "integer": {"top1": None}, "agreement": 0.5,
        "sqnr_db": 31.25, "integer_only": True, "max_bits": 27, "operators": {"Convolution": 3},
        "seconds": {"compile": 1.5}, "bit_exact_samples": 4,
    }  # fmt: skip
    Reporter(Console(file=written)).table(summary_table(summary))
    text = written.getvalue()
    for part in ("net", "75.00 %", "50.00 %", "31.25 dB", "27 bits", "Convolution", "1.50", "4 samples"):
        assert part in text

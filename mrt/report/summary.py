"""The summary of an evaluation, as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.table import Table


def summary_table(summary: Mapping[str, Any]) -> Table:
    """The summary as a table for people: shares in per cent, the rest as it is."""
    table = Table("", "float", "integer", box=box.SIMPLE_HEAD, title=summary["model"], title_justify="left")
    table.add_row("top-1", _percent(summary["float"]["top1"]), _percent(summary["integer"]["top1"]))
    table.add_row("agreement", "", _percent(summary["agreement"]))
    table.add_row("SQNR of the logits", "", "-" if summary["sqnr_db"] is None else f"{summary['sqnr_db']:.2f} dB")
    table.add_row("samples", str(summary["samples"]), str(summary["samples"]))
    table.add_row("compiled = evaluated on", "", f"{summary['bit_exact_samples']} samples")
    table.add_row(
        "integer only", "", f"{'yes' if summary['integer_only'] else 'no'}, at most {summary['max_bits']} bits"
    )
    table.add_section()
    for name, count in summary["operators"].items():
        table.add_row(name, "", str(count))
    table.add_section()
    for stage, seconds in summary["seconds"].items():
        table.add_row(f"{stage}, seconds", "", f"{seconds:.2f}")
    return table


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"

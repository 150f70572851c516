"""Where a quantization loses accuracy, for people: a table of all that is rounded, the largest loss first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from difflib import get_close_matches

from rich import box
from rich.table import Table
from rich.text import Text

from mrt.errors import MRTError
from mrt.quantization.simulation.sensitivity import Loss, Sensitivity
from mrt.quantization.simulation.simulation import mean_error
from mrt.report.inspect import UNKNOWN, shown
from mrt.report.table import aligned
from mrt.symbol import Array

COLUMNS = ("rounded", "operator", "what", "bits", "share", "SQNR alone", "SQNR so far")
TEXTS = COLUMNS[:3]
"""The columns whose cells stand at the left."""
NOISE = 1e-12
"""The error, as a share of the signal, that float32 itself makes."""


def sensitivity_lines(found: Sensitivity, name: str | None = None) -> list[tuple[str, ...]]:
    """The table, its header first; where there are several outputs, with the SQNR alone at each.

    name: of which layer or tensor, by default all. Raises MRTError with the nearest where nothing of that name is
    rounded.
    """
    several = found.outputs if len(found.outputs) > 1 else ()
    header = (*COLUMNS, *(f"alone at {shown(output)}" for output in several))
    losses = [loss for loss in found.losses if name in (None, loss.name)]
    if not losses and name is not None:
        raise MRTError(_unknown(name, found))
    return [header, *(_cells(loss, len(several)) for loss in losses)]


def plain_sensitivity(lines: Sequence[Sequence[str]]) -> str:
    """The table as text in aligned columns."""
    return aligned(lines, set(lines[0]) - set(TEXTS))


def rich_sensitivity(lines: Sequence[Sequence[str]]) -> Table:
    """The table for a terminal; what is too wide is folded."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for column in lines[0]:
        table.add_column(column, overflow="fold", justify="left" if column in TEXTS else "right")
    for line in lines[1:]:
        table.add_row(*map(Text, line))
    return table


def overview(found: Sensitivity) -> str:
    """What holds of the whole, and what the columns say."""
    each = (f"{shown(name)} {decibels(error)}" for name, error in zip(found.outputs, found.whole, strict=True))
    parts = f" ({', '.join(each)})" if len(found.outputs) > 1 else ""
    return (
        f"all rounded: {decibels(mean_error(found.whole))}{parts}, simulated on {found.samples} held-apart samples\n"
        "alone: where nothing else is rounded; share: of the sum of these errors; "
        "so far: where all before it in the network is rounded too"
    )


def decibels(error: float) -> str:
    """An error, as a share of the signal, as SQNR."""
    if math.isnan(error):
        return UNKNOWN
    return f"{-10 * math.log10(error):.1f} dB" if error > NOISE else "no error"


def _cells(loss: Loss, outputs: int) -> tuple[str, ...]:
    means: tuple[Array, Array] = (loss.alone, loss.so_far)
    return (
        shown(loss.name),
        loss.operator,
        loss.what,
        str(loss.bits),
        f"{100 * loss.share:.1f} %",
        *(decibels(mean_error(errors)) for errors in means),
        *(decibels(float(error)) for error in loss.alone[:outputs]),
    )


def _unknown(name: str, found: Sensitivity) -> str:
    near = get_close_matches(name, [loss.name for loss in found.losses], 5, 0.5)
    hint = (
        f"the nearest are {', '.join(map(shown, dict.fromkeys(near)))}" if near else "without --symbol all are listed"
    )
    return f"nothing called {shown(name)} is rounded; {hint}"

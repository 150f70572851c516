"""A table of the layers of the user's network: one row a layer, the worst first where that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from mrt.errors import MRTError
from mrt.report.facts import Layer
from mrt.report.inspect import UNKNOWN, shown
from mrt.report.table import aligned

COLUMNS = (
    "layer", "what", "channels", "bits", "share of error", "", "SQNR alone", "SQNR", "clipped", "spare bits",
    "time", " ",
)  # fmt: skip
"""The two without a name are bars of the column before."""
NUMBERS = frozenset({"bits", "share of error", "SQNR alone", "SQNR", "clipped", "spare bits", "time"})
"""The columns whose cells stand at the right."""
BAR = 8
"""Characters of a full bar."""
EIGHTHS = " ▏▎▍▌▋▊▉█"
MOST = 32

Key = Callable[[Layer], float | None]


def _most_bits(layer: Layer) -> float | None:
    return -max((bits.chosen for bits in layer.bits), default=0)


SORTS: Mapping[str, Key] = {
    "error": lambda layer: None if layer.sqnr is None else layer.sqnr.cumulative,
    "share": lambda layer: None if layer.shares is None else -layer.shares.alone,
    "bits": _most_bits,
    "headroom": lambda layer: None if layer.headroom.sum is None else -layer.headroom.sum.bits,
    "time": lambda layer: None if layer.seconds is None else -layer.seconds,
}
"""What layers are sorted by, the least first; None stands last."""
NEEDED = {"error": "stage evaluate", "share": "stage report", "time": "stage report"}
"""The stage of a run that measures what is sorted by."""


def sorted_layers(layers: Sequence[Layer], sort: str | None, worst: int | None) -> list[Layer]:
    """The layers by one of SORTS, or in the order of the network; the first `worst` of them.

    worst without sort: by share, or by error where no shares were measured.
    Raises MRTError for a name that is none of SORTS, and where none of the layers has what is sorted by.
    """
    if sort is None and worst is not None:
        sort = next((name for name in ("share", "error") if _has(layers, name)), "bits")
    if sort is None:
        return list(layers)
    if sort not in SORTS:
        raise MRTError(f"--sort is {sort}; one of {', '.join(SORTS)} is needed")
    if not _has(layers, sort):
        raise MRTError(f"--sort {sort}: that was not measured; {NEEDED.get(sort, 'a run')} of mrt run does")
    key = SORTS[sort]
    values = {layer.id: key(layer) for layer in layers}
    known = sorted((each for each in layers if values[each.id] is not None), key=lambda each: values[each.id] or 0.0)
    return [*known, *(each for each in layers if values[each.id] is None)][:worst]


def _has(layers: Sequence[Layer], sort: str) -> bool:
    return any(SORTS[sort](layer) is not None for layer in layers)


def layer_lines(layers: Sequence[Layer], chosen: Sequence[Layer]) -> list[tuple[str, ...]]:
    """The header and a line for each of `chosen`; bars are of the largest of all `layers`."""
    share = max((layer.shares.alone for layer in layers if layer.shares), default=0.0)
    time = max((layer.time_share or 0.0 for layer in layers), default=0.0)
    return [COLUMNS, *(_cells(layer, share, time) for layer in chosen)]


def _cells(layer: Layer, most_share: float, most_time: float) -> tuple[str, ...]:
    shares, sqnr, values, widest = layer.shares, layer.sqnr, layer.values, layer.headroom.sum
    what = " ".join(filter(None, (layer.kind, layer.detail, *(f"+ {name}" for name in layer.followers))))
    return (
        shown(layer.name),
        what,
        layer.channels,
        "/".join(str(bits.chosen) for bits in layer.bits) or UNKNOWN,
        UNKNOWN if shares is None else f"{100 * shares.alone:.1f} %",
        "" if shares is None else bar(shares.alone, most_share),
        UNKNOWN if sqnr is None or sqnr.isolated is None else f"{sqnr.isolated:.1f} dB",
        UNKNOWN if sqnr is None or sqnr.cumulative is None else f"{sqnr.cumulative:.1f} dB",
        UNKNOWN if values is None else f"{100 * values.clipped:.2g} %",
        UNKNOWN if widest is None else f"{MOST - widest.bits:.1f}",
        UNKNOWN if layer.seconds is None else f"{1e6 * layer.seconds:.1f} µs",
        "" if layer.time_share is None else bar(layer.time_share, most_time),
    )


def bar(value: float, most: float) -> str:
    """A bar of at most BAR characters, to an eighth of one; nothing for nothing."""
    eighths = round(8 * BAR * min(value / most, 1.0)) if most > 0 else 0
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (EIGHTHS[rest] if rest else "")


def plain_layers(lines: Sequence[Sequence[str]]) -> str:
    """The table as text in aligned columns, however wide."""
    return aligned(lines, NUMBERS)


def rich_layers(lines: Sequence[Sequence[str]]) -> Table:
    """The table for a terminal; what is too wide is folded."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for column in lines[0]:
        is_bar = not column.strip()
        table.add_column(
            column.strip(), overflow="fold", justify="right" if column in NUMBERS else "left", no_wrap=is_bar
        )
    for line in lines[1:]:
        table.add_row(
            *(Text(cell, style="cyan" if not name.strip() else "") for name, cell in zip(lines[0], line, strict=True))
        )
    return table


def layer_overview(layers: Sequence[Layer], samples: int | None, missing: Mapping[str, str]) -> str:
    """What the columns say, and why some are empty. samples: of the report, None where there is none."""
    if samples is None:
        return (
            "bits: of the integers that end the layer; SQNR: with all before it quantized; spare bits: under 32 of its "
            "widest sum\nshare of error, SQNR alone, clipped, time: not measured; stage report of mrt run does"
        )
    said = [
        f"over {samples} samples; share of error: rounding its output and weights alone, of the whole error at the "
        "outputs; SQNR alone, SQNR: at its output, nothing or all before it quantized; spare bits: under 32 of its "
        "widest sum; bits: of output/weight"
    ]
    names = ("layers.shares", "layers.values", "time")
    return "\n".join([*said, *(f"{name}: not measured; {missing[name]}" for name in names if name in missing)])

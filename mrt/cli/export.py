"""`mrt export`: a saved model in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mrt.cli.app import Saved, one_line_errors
from mrt.export.formats import EXPORT_FORMATS, export_format


def _known_format(name: str) -> str:
    """The name of a format; a usage error where there is none of it."""
    names = [entry.name for entry in EXPORT_FORMATS]
    if name not in names:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(names)}.")
    return name


Format = Annotated[
    str,
    typer.Option(
        "--format",
        callback=_known_format,
        metavar="|".join(entry.name for entry in EXPORT_FORMATS),
        help="; ".join(f"{entry.name}: {entry.about}" for entry in EXPORT_FORMATS),
    ),
]
Written = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="PATH",
        help="What to write, if not in DIR; "
        + "; ".join(f"{entry.name}: {entry.path} ({entry.default_name})" for entry in EXPORT_FORMATS),
    ),
]
Batch = Annotated[
    str | None,
    typer.Option(
        "--batch", metavar="N|any", help="Samples at once, instead of as many as are saved; any number in ONNX."
    ),
]
Target = Annotated[
    str | None, typer.Option("--target", metavar="TARGET", help="Of a library: for which CPU, as in compile.target.")
]
Name = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="Of C and a library: what their names begin with.")
]
Ends = Annotated[
    str | None,
    typer.Option("--ends", metavar="integer|float", help="Of ONNX: whether inputs and outputs are real values."),
]


def export(
    directory: Saved,
    format_: Format,
    output: Written = None,
    batch: Batch = None,
    target: Target = None,
    name: Name = None,
    ends: Ends = None,
) -> None:
    """Write a saved model, verified, in another format: the same integers for the same integers."""
    with one_line_errors():
        from mrt.model import load

        chosen = export_format(format_)
        further, size = chosen.further({"target": target, "name": name, "ends": ends}), chosen.batch(batch)
        model = load(directory)
        written = getattr(model, f"to_{chosen.name}")(output or directory / chosen.default_name, size, **further)
        for path in written:
            typer.echo(f"{path}: {path.stat().st_size} bytes, digest {model.digest}")
        summary = chosen.summary(written)
        if summary:
            typer.echo(summary)

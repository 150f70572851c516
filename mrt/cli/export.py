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


def export(
    directory: Saved,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            callback=_known_format,
            metavar="|".join(entry.name for entry in EXPORT_FORMATS),
            help="; ".join(f"{entry.name}: {entry.about}" for entry in EXPORT_FORMATS),
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="PATH",
            help="What to write, if not in DIR; "
            + "; ".join(f"{entry.name}: {entry.path} ({entry.default_name})" for entry in EXPORT_FORMATS),
        ),
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option(
            "--batch", metavar="N|any", help="Samples at once, instead of as many as are saved; any number in ONNX."
        ),
    ] = None,
) -> None:
    """Write a saved model, verified, in another format: the same integers for the same integers."""
    with one_line_errors():
        from mrt.model import load

        model, target = load(directory), export_format(format_)
        write = getattr(model, f"to_{target.name}")
        written = write(output or directory / target.default_name, target.batch(batch))
        for path in written:
            typer.echo(f"{path}: {path.stat().st_size} bytes, digest {model.digest}")
        summary = target.summary(written)
        if summary:
            typer.echo(summary)

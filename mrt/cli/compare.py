"""`mrt compare`: two runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mrt.cli.app import one_line_errors
from mrt.cli.report import show


def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="The folder of one run.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="The folder of the other.")],
    output: Annotated[
        Path | None, typer.Option("--output", metavar="DIR", help="Where compare.html and compare.md go; by default B.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Put two runs side by side: accuracy, size, time, and the layers whose error changed."""
    folder = output or second
    with one_line_errors():
        from mrt.report.page.compare import COMPARE_HTML, compare_files, compare_folders, compare_text
        from mrt.result_folder import save_all

        comparison = compare_folders(first, second)
        files = compare_files(comparison)
        save_all(folder, files)
    typer.echo(compare_text(comparison))
    typer.echo("")
    for name in files:
        typer.echo(folder / name)
    if open_:
        show(folder / COMPARE_HTML)

"""`mrt report`: what a run measured, as a page and as text for a pull request."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mrt.cli.app import Saved, one_line_errors


def report(
    directory: Saved,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="With the notes that are for developers.")] = False,
) -> None:
    """Write what is known of a quantized network as a page, report.html, and for pull requests, report.md."""
    with one_line_errors():
        from mrt.report.page import HTML_FILE, page_files, saved_report
        from mrt.result_folder import save_all

        files = page_files(saved_report(directory), verbose)
        save_all(directory, files)
        for name, content in files.items():
            typer.echo(f"{directory / name}: {len(content)} bytes")
    if open_:
        show(directory / HTML_FILE)


def show(page: Path) -> None:
    """Opens a page in the user's browser; says where it lies if there is none."""
    if typer.launch(page.resolve().as_uri()) != 0:
        typer.echo(f"no browser could be started; open {page} by hand", err=True)

"""`mrt compile`: a saved model, compiled anew."""

from __future__ import annotations

from typing import Annotated

import typer

from mrt.cli.app import Saved, one_line_errors


def compile_(
    directory: Saved,
    target: Annotated[
        str, typer.Option("--target", metavar="TARGET", help="For which CPU, as in compile.target: native, or JSON.")
    ] = "native",
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", help="Samples that the module is mostly given at a time.")
    ] = 1,
    cache: Annotated[
        bool,
        typer.Option("--cache/--no-cache", help="Whether kernels that were compiled before are used."),
    ] = True,
) -> None:
    """Compile a saved model, verified, anew: the module that is there is replaced, and never loaded."""
    with one_line_errors():
        import mrt
        from mrt.module_record import record_text
        from mrt.progress import Reporter
        from mrt.result_folder import save_all
        from mrt.stages.stage import TILINGS
        from mrt.steps import compiled

        module = compiled(mrt.load(directory), target, batch, None, directory / TILINGS, Reporter(), cache)
        save_all(directory, module.files)
        typer.echo(record_text(module.record))

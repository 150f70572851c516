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
    """Compile a saved model, verified, anew: the module that is there is replaced, and never loaded. A report beside it
    is written without the times of the module before."""
    with one_line_errors():
        import mrt
        from mrt.module_record import MODULE_FILE, record_text
        from mrt.progress import Reporter
        from mrt.report.recompiled import recompiled_files
        from mrt.result_folder import save_all
        from mrt.stages.stage import TILINGS
        from mrt.steps import compiled

        report = Reporter()
        with report.step("compile"):
            model = mrt.load(directory)
            module = compiled(model, target, batch, None, directory / TILINGS, report, cache)
        files = module.files
        save_all(directory, files | recompiled_files(directory, model, len(files[MODULE_FILE])))
        typer.echo(record_text(module.record))

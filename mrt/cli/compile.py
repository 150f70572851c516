"""`mrt compile`: a saved model, compiled anew."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated

import typer

from mrt.cli.app import OnDevice, Saved, one_line_errors


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
        typer.Option("--cache/--no-cache", help="Whether what was compiled before is used."),
    ] = True,
    tune: Annotated[
        int | None, typer.Option("--tune", metavar="N", min=1, help="Measure up to N tilings of each kernel.")
    ] = None,
    device: OnDevice = None,
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
        trials = None if tune is None else mrt.TuneConfig(trials=tune)
        with report.step("compile"), nullcontext() if device is None else mrt.open_device(device) as on:
            model = mrt.load(directory)
            module = compiled(model, target, batch, trials, directory / TILINGS, report, cache, on)
        files = module.files
        save_all(directory, files | recompiled_files(directory, model, len(files[MODULE_FILE])))
        typer.echo(record_text(module.record))

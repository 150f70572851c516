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
    tune: Annotated[
        int | None, typer.Option("--tune", metavar="N", min=1, help="Measure up to N tilings of each kernel.")
    ] = None,
    device: OnDevice = None,
) -> None:
    """Compile a saved model, verified, anew: the module that is there is replaced, and never loaded."""
    with one_line_errors():
        import mrt
        from mrt.module_record import record_text
        from mrt.progress import Reporter
        from mrt.result_folder import save_all
        from mrt.stages.stage import TILINGS
        from mrt.steps import compiled

        model, trials = mrt.load(directory), None if tune is None else mrt.TuneConfig(trials=tune)
        with nullcontext() if device is None else mrt.open_device(device) as on:
            module = compiled(model, target, batch, trials, directory / TILINGS, Reporter(), on)
        save_all(directory, module.files)
        typer.echo(record_text(module.record))

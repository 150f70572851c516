"""`mrt run`: a configuration, quantized stage by stage."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from mrt.cli.app import Cluster, Configuration, OnDevice, Output, Settings, Shape, one_line_errors


class StageName(str, enum.Enum):
    """The stages of a run, in order."""

    prepare = "prepare"
    calibrate = "calibrate"
    quantize = "quantize"
    compile = "compile"
    evaluate = "evaluate"
    report = "report"


def run(
    config: Configuration,
    set_: Settings = None,
    shape: Shape = None,
    random_params: Annotated[
        bool, typer.Option("--random-params", help="Draw the parameters that a Relay text lacks, for trying.")
    ] = False,
    from_: Annotated[
        StageName | None, typer.Option("--from", help="The first stage to run anew; earlier ones are taken as saved.")
    ] = None,
    to: Annotated[StageName | None, typer.Option("--to", help="The last stage.")] = None,
    output: Output = None,
    cluster: Cluster = None,
    device: OnDevice = None,
) -> None:
    """Quantize a network as a configuration says: prepare, calibrate, quantize, compile, evaluate, report."""
    with one_line_errors():
        from mrt.cli.kept import configuration_in, keep_configuration
        from mrt.config import load_config
        from mrt.pipeline import run_pipeline
        from mrt.stages.stage import output_folder

        config = configuration_in(config)
        settings = load_config(config, set_ or (), shape or (), random_params, {"cluster": cluster, "device": device})
        run_pipeline(settings, from_ and from_.value, to and to.value, output)
        keep_configuration(config, settings, output_folder(settings, output))

"""`mrt quantize`: a model and data, without a configuration, which is made of the options and written down."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mrt.cli import data_options as asked
from mrt.cli.app import Output, Settings, Shape, one_line_errors

if TYPE_CHECKING:
    from mrt.cli.described import Described
    from mrt.progress import Reporter

WHERE = "a folder of images, an .npz or .npy file, or FILE.py:FUNCTION"

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A model file of any format, or FILE.py:FUNCTION.")]
Data = Annotated[str | None, typer.Option("--data", metavar="WHERE", help=f"The samples: {WHERE}.")]
Test = Annotated[
    str | None, typer.Option("--test", metavar="WHERE", help="What is scored, instead of a part of --data held out.")
]
Target = Annotated[
    str | None, typer.Option("--target", metavar="TARGET", help="For which CPU, as in compile.target: native, or JSON.")
]
Batch = Annotated[int | None, typer.Option("--batch", metavar="N", min=1, help="Samples mostly run at a time.")]


def quantize(
    model: Model,
    data: Data = None,
    test: Test = None,
    output: Output = None,
    scale: asked.Scale = None,
    mean: asked.Mean = None,
    std: asked.Std = None,
    layout: asked.Layout = None,
    mode: asked.Mode = None,
    resize: asked.Resize = None,
    crop: asked.Crop = None,
    x: asked.X = None,
    y: asked.Y = None,
    labels: asked.Labels = None,
    samples: asked.Samples = None,
    shape: Shape = None,
    set_: Settings = None,
    target: Target = None,
    batch: Batch = None,
) -> None:
    """Quantize a model on data without a configuration: the one that it stands for is printed and kept, for mrt run."""
    keys = {"scale": scale, "mean": mean, "std": std, "layout": layout, "mode": mode, "resize": resize, "crop": crop}
    with one_line_errors():
        from mrt.cli.described import Flags, described

        files = {"x": tuple(x or ()) or None, "y": y, "labels": None if labels is None else str(labels)}
        given = {key: value for key, value in {**keys, **files}.items() if value is not None}
        flags = Flags(model, data, test, output, given, samples, target, batch, tuple(shape or ()), tuple(set_ or ()))
        from mrt.progress import Reporter

        report = Reporter()
        with report.step("read"):
            found = described(flags)
        _run(found, report)


def _run(found: Described, report: Reporter) -> None:
    """Runs what the options stand for, and says how to run it again."""
    from mrt.cli.kept import CONFIGURATION, kept_configuration
    from mrt.pipeline import run_pipeline
    from mrt.stages.stage import output_folder
    from mrt.symbol.files import atomic_write_all

    path = output_folder(found.config, None) / CONFIGURATION
    content = kept_configuration(found.config, path.parent)
    report.line(content.decode())
    for remark in found.remarks:
        report.line(remark)
    run_pipeline(found.config, None, found.last, report=report, graph=found.graph)
    atomic_write_all({path: content})
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    report.line(f"mrt run {shlex.quote(str(shown))}{found.last_option} repeats this")

"""`mrt inspect`: what is known of a saved model, or of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mrt.cli.app import Shape, one_line_errors
from mrt.errors import MRTError

if TYPE_CHECKING:
    from rich.table import Table

    from mrt.config import RunConfig

Name = Annotated[
    str | None,
    typer.Option("--symbol", metavar="NAME", help="Tell of one symbol, or of what was made from a float symbol."),
]
Compiled = Annotated[
    bool,
    typer.Option(
        "--compiled",
        help="Show the record of the compiled module, the functions that the model is compiled to and why each "
        "ends, and why rewrites left symbols alone.",
    ),
]
Planned = Annotated[
    bool, typer.Option("--plan", help="Show the form that every reader takes of every float tensor, once calibrated.")
]
Sensitive = Annotated[
    bool, typer.Option("--sensitivity", help="Show the outputs' error that each rounding causes, once calibrated.")
]
Tensors = Annotated[bool, typer.Option("--tensors", help="Show every tensor of the integer network, not its layers.")]
Sort = Annotated[
    str | None,
    typer.Option("--sort", metavar="error|share|bits|headroom|time", help="Show the layers that have most first."),
]
Worst = Annotated[int | None, typer.Option("--worst", metavar="N", min=1, help="Show so many, the worst by --sort.")]
Memory = Annotated[
    bool,
    typer.Option("--memory", help="Show where the tensors of a run of one sample lie, and when each is needed."),
]
CompiledFor = Annotated[
    str,
    typer.Option("--target", metavar="TARGET", help="With --compiled, --memory: for which CPU, as in compile.target."),
]
Json = Annotated[bool, typer.Option("--json", help="Write all that is known of the layers as JSON.")]


def inspect(
    place: Annotated[
        Path, typer.Argument(metavar="DIR", help="A saved model; with --plan or --sensitivity, CONFIG.yaml of a run.")
    ],
    symbol: Name = None,
    compiled: Compiled = False,
    plan: Planned = False,
    sensitivity: Sensitive = False,
    tensors: Tensors = False,
    memory: Memory = False,
    sort: Sort = None,
    worst: Worst = None,
    json: Json = False,
    target: Annotated[
        str,
        typer.Option(
            "--target", metavar="TARGET", help="With --compiled, --memory: for which CPU, as in compile.target."
        ),
    ] = "native",
    shape: Shape = None,
) -> None:
    """Show the layers of a saved model or its tensors, where the bounds of one come from, what it is compiled to, its
    plan, or where it loses accuracy."""
    with one_line_errors():
        if sensitivity:
            text = _sensitivity_text(_configuration(place, "--sensitivity", shape), symbol)
        elif plan:
            text = _plan_text(_configuration(place, "--plan", shape), symbol)
        elif compiled:
            text = _compiled_text(place, target)
        elif memory:
            text = _memory_text(place, target)
        elif tensors or symbol is not None:
            text = _tensors_text(place, symbol)
        else:
            text = _layers_text(place, sort, worst, json)
    # Written outside: a reader that closes the pipe early, such as head, is no error of the user's.
    typer.echo(text, color=True)


def _plan_text(config: RunConfig, symbol: str | None) -> str:
    from mrt.pipeline import plan_of_run
    from mrt.quantization.plan.text import plan_text

    return plan_text(plan_of_run(config), symbol)


def _sensitivity_text(config: RunConfig, symbol: str | None) -> str:
    from rich.console import Console

    from mrt.pipeline import sensitivity_of_run
    from mrt.progress import Reporter
    from mrt.report import sensitivity as report

    found = sensitivity_of_run(config, report=Reporter(Console(stderr=True)))
    lines = report.sensitivity_lines(found, symbol)
    return _table_text(
        report.plain_sensitivity(lines), lambda width: report.rich_sensitivity(lines), report.overview(found)
    )


def _configuration(place: Path, option: str, shapes: list[str] | None) -> RunConfig:
    """The configuration of a run; MRTError for a folder, which does not say what it was made from."""
    from mrt.cli.kept import configuration_in
    from mrt.config import load_config

    place = configuration_in(place)
    if place.is_dir():
        raise MRTError(
            f"{place} is a folder; {option} needs the CONFIG.yaml of its run, which names the model and the data"
        )
    return load_config(place, (), shapes or ())


def _table_text(plain: str, rich: Callable[[int], Table], below: str) -> str:
    """A table, for a terminal of its width or as plain text, and what stands below it."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        return f"{plain}\n\n{below}"
    with console.capture() as captured:
        console.print(rich(console.width))
    return f"{captured.get()}{below}"


def _compiled_text(directory: Path, target: str) -> str:
    import mrt
    from mrt.backend import compiled_text, explain
    from mrt.module_record import module_in, record_text

    model = mrt.load(directory)
    record = module_in(directory, model.digest)
    compiled = compiled_text(explain(model.graph, model.inputs, target))
    return f"{'no compiled module' if record is None else record_text(record)}\n\n{compiled}"


def _memory_text(directory: Path, target: str) -> str:
    import mrt
    from mrt.report.memory import memory_text

    return memory_text(mrt.load(directory), target)


def _layers_text(directory: Path, sort: str | None, worst: int | None, as_json: bool) -> str:
    """The layers of the network, as a table or as JSON."""
    import json

    import mrt
    from mrt.report import layer_table as report
    from mrt.report.errors import read_errors
    from mrt.report.facts import read_report
    from mrt.report.saved import saved_layers

    model = mrt.load(directory)
    told = read_report(directory, model.digest)
    layers = saved_layers(model, read_errors(directory)) if told is None else told.layers
    chosen = report.sorted_layers(layers, sort, worst)
    if as_json:
        return json.dumps([layer.model_dump(mode="json") for layer in chosen], indent=1)
    lines = report.layer_lines(layers, chosen)
    samples, missing = (None, {}) if told is None else (told.samples, told.missing)
    below = report.layer_overview(layers, samples, missing)
    return _table_text(report.plain_layers(lines), lambda width: report.rich_layers(lines), below)


def _tensors_text(directory: Path, symbol: str | None) -> str:
    """What is known of all tensors, as a table, or of one."""
    import mrt
    from mrt.report import inspect as report
    from mrt.report.errors import read_errors

    model, errors = mrt.load(directory), read_errors(directory)
    if symbol is not None:
        return report.explain(model, symbol, errors)
    rows, summary = report.inspect_rows(model, errors), report.overview(model, errors)
    if not rows:
        return summary
    return _table_text(report.plain_table(rows), lambda width: report.rich_table(rows, width), summary)

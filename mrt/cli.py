"""The `mrt` command."""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mrt.errors import MRTError
from mrt.export.formats import EXPORT_FORMATS, export_format
from mrt.version import __version__

if TYPE_CHECKING:
    from rich.table import Table

    from mrt.config import RunConfig

INTERRUPTED, UNMET = 130, 3

Shape = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="INPUT=1,3,224,224", help="The shape of an input whose file leaves sizes open."),
]

app = typer.Typer(
    help="Trained float networks in, integer-only networks with a proof out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class StageName(str, enum.Enum):
    """The stages of a run, in order."""

    prepare = "prepare"
    calibrate = "calibrate"
    quantize = "quantize"
    compile = "compile"
    evaluate = "evaluate"


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Turns what a user can mend into one line and exit status 1."""
    try:
        yield
    except MRTError as error:
        _fail(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}")
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        raise typer.Exit(INTERRUPTED) from None


def _fail(message: str) -> None:
    typer.echo(f"error: {' '.join(message.split())}", err=True)
    raise typer.Exit(1)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mrt {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def run(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.yaml", help="What to quantize, and how.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Set a key of the configuration; the value is YAML."),
    ] = None,
    shape: Shape = None,
    random_params: Annotated[
        bool, typer.Option("--random-params", help="Draw the parameters that a Relay text lacks, for trying.")
    ] = False,
    from_: Annotated[
        StageName | None, typer.Option("--from", help="The first stage to run anew; earlier ones are taken as saved.")
    ] = None,
    to: Annotated[StageName | None, typer.Option("--to", help="The last stage.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="DIR", help="The folder of the results, instead of `output`.")
    ] = None,
) -> None:
    """Quantize a network as a configuration says: prepare, calibrate, quantize, compile, evaluate."""
    with _one_line_errors():
        from mrt.config import load_config
        from mrt.pipeline import run_pipeline

        settings = load_config(config, set_ or (), shape or (), random_params)
        run_pipeline(settings, from_ and from_.value, to and to.value, output)


@app.command()
def tune(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.yaml", help="What to quantize, as for mrt run.")],
    drop: Annotated[
        float | None,
        typer.Option("--drop", metavar="D", help="How much the metric may fall; of top1 in percentage points."),
    ] = None,
    metric: Annotated[
        str, typer.Option("--metric", metavar="top1|sqnr|FILE.py:FUNCTION", help="What the network is judged by.")
    ] = "top1",
    least: Annotated[
        float | None, typer.Option("--least", metavar="DB", help="With --metric sqnr: the least SQNR in dB.")
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", metavar="S", help="No trial begins later.")] = 120.0,
    objective: Annotated[str, typer.Option("--objective", metavar="latency|bytes|bits", help="What is least.")] = (
        "latency"
    ),
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the order of trials.")] = 0,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Set a key of the configuration; the value is YAML."),
    ] = None,
    shape: Shape = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="DIR", help="The folder of the results, instead of `output`.")
    ] = None,
) -> None:
    """Search the fastest or smallest network whose metric falls by no more than is allowed."""
    with _one_line_errors():
        from mrt import search
        from mrt.config import load_config
        from mrt.progress import Reporter

        settings, report = load_config(config, set_ or (), shape or ()), Reporter()
        wanted = search.objective_of(objective)
        tuned = search.tune(settings, drop, metric, least, seconds, wanted, seed, output, report)
        for table in tuned.tables():
            report.table(table)
        report.line(tuned.verdict)
        report.line(f"mrt run {tuned.configuration} makes it")
    if not tuned.meets:
        raise typer.Exit(UNMET)


@app.command()
def verify(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a saved model.")],
) -> None:
    """Prove a saved model anew from nothing but its files: integer only, every tensor within 32 bits."""
    with _one_line_errors():
        from mrt.certificate import verify as prove

        typer.echo(f"{directory}: {prove(directory)}")


@app.command()
def inspect(
    place: Annotated[
        Path, typer.Argument(metavar="DIR", help="A saved model; with --plan or --sensitivity, CONFIG.yaml of a run.")
    ],
    symbol: Annotated[
        str | None,
        typer.Option("--symbol", metavar="NAME", help="Tell of one symbol, or of what was made from a float symbol."),
    ] = None,
    compiled: Annotated[
        bool,
        typer.Option(
            "--compiled",
            help="Show the record of the compiled module, the functions that the model is compiled to and why each "
            "ends, and why rewrites left symbols alone.",
        ),
    ] = False,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Show the form that every reader takes of every float tensor, once calibrated."),
    ] = False,
    sensitivity: Annotated[
        bool,
        typer.Option("--sensitivity", help="Show the outputs' error that each rounding causes, once calibrated."),
    ] = False,
    target: Annotated[
        str, typer.Option("--target", metavar="TARGET", help="With --compiled: for which CPU, as in compile.target.")
    ] = "native",
    shape: Shape = None,
) -> None:
    """Show every tensor of a saved model, where the bounds of one come from, what it is compiled to, its plan, or where
    it loses accuracy."""
    with _one_line_errors():
        if sensitivity:
            text = _sensitivity_text(_configuration(place, "--sensitivity", shape), symbol)
        elif plan:
            text = _plan_text(_configuration(place, "--plan", shape), symbol)
        elif compiled:
            text = _compiled_text(place, target)
        else:
            text = _tensors_text(place, symbol)
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
    from mrt.config import load_config

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


@app.command("compile")
def compile_(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a saved model.")],
    target: Annotated[
        str, typer.Option("--target", metavar="TARGET", help="For which CPU, as in compile.target: native, or JSON.")
    ] = "native",
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", help="Samples that the module is mostly given at a time.")
    ] = 1,
) -> None:
    """Compile a saved model, verified, anew: the module that is there is replaced, and never loaded."""
    with _one_line_errors():
        import mrt
        from mrt.module_record import record_text
        from mrt.progress import Reporter
        from mrt.result_folder import save_all
        from mrt.stages.stage import TILINGS
        from mrt.steps import compiled

        module = compiled(mrt.load(directory), target, batch, None, directory / TILINGS, Reporter())
        save_all(directory, module.files)
        typer.echo(record_text(module.record))


def _known_format(name: str) -> str:
    """The name of a format; a usage error where there is none of it."""
    names = [entry.name for entry in EXPORT_FORMATS]
    if name not in names:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(names)}.")
    return name


@app.command()
def export(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a saved model.")],
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
    with _one_line_errors():
        from mrt.model import load

        model, target = load(directory), export_format(format_)
        write = getattr(model, f"to_{target.name}")
        written = write(output or directory / target.default_name, target.batch(batch))
        for path in written:
            typer.echo(f"{path}: {path.stat().st_size} bytes, digest {model.digest}")
        summary = target.summary(written)
        if summary:
            typer.echo(summary)


def main() -> None:
    """The entry point of the command."""
    _use_all_cores()
    sys.exit(app())


def _use_all_cores() -> None:
    """By itself TVM takes half of the logical cores; it must be told before it starts its threads."""
    if "TVM_NUM_THREADS" not in os.environ and "OMP_NUM_THREADS" not in os.environ:
        os.environ["TVM_NUM_THREADS"] = str(len(os.sched_getaffinity(0)))
        os.environ.setdefault("TVM_BIND_THREADS", "0")


if __name__ == "__main__":
    main()

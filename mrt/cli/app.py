"""What the commands share: the application that they register with, options that several take, errors as one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from mrt.errors import MRTError
from mrt.version import __version__

INTERRUPTED, UNMET = 130, 3

Configuration = Annotated[Path, typer.Argument(metavar="CONFIG.yaml", help="What to quantize, and how.")]
Saved = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a saved model.")]
Shape = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="INPUT=1,3,224,224", help="The shape of an input whose file leaves sizes open."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Set a key of the configuration; the value is YAML."),
]
Output = Annotated[
    Path | None, typer.Option("--output", metavar="DIR", help="The folder of the results, instead of `output`.")
]
Cluster = Annotated[
    str | None,
    typer.Option("--cluster", metavar="N|ADDRESS", help="Work in N processes, or on the cluster of a Dask scheduler."),
]

OnDevice = Annotated[
    str | None,
    typer.Option(
        "--device", metavar="rpc://HOST:PORT/KEY", help="Where compiled code is tuned and run; by default here."
    ),
]

app = typer.Typer(
    help="Trained float networks in, integer-only networks with a proof out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turns what a user can mend into one line and exit status 1."""
    try:
        yield
    except MRTError as error:
        _fail(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}")
    except KeyboardInterrupt as error:
        typer.echo(f"interrupted; {error}" if str(error) else "interrupted", err=True)
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

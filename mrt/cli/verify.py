"""`mrt verify`: the proof of a saved model, made anew."""

from __future__ import annotations

import typer

from mrt.cli.app import Saved, one_line_errors


def verify(directory: Saved) -> None:
    """Prove a saved model anew from nothing but its files: integer only, every tensor within 32 bits."""
    with one_line_errors():
        from mrt.certificate import verify as prove

        typer.echo(f"{directory}: {prove(directory)}")

"""`mrt tune`: the fastest or smallest network that is accurate enough."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mrt.cli.app import UNMET, Cluster, OnDevice, Output, Settings, Shape, one_line_errors


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
    set_: Settings = None,
    shape: Shape = None,
    output: Output = None,
    cluster: Cluster = None,
    device: OnDevice = None,
) -> None:
    """Search the fastest or smallest network whose metric falls by no more than is allowed."""
    with one_line_errors():
        from mrt import search
        from mrt.config import load_config
        from mrt.progress import Reporter

        flags, report = {"cluster": cluster, "device": device}, Reporter()
        settings = load_config(config, set_ or (), shape or (), flags=flags)
        wanted = search.objective_of(objective)
        tuned = search.tune(settings, drop, metric, least, seconds, wanted, seed, output, report)
        for table in tuned.tables():
            report.table(table)
        report.line(tuned.verdict)
        report.line(f"mrt run {tuned.configuration} makes it")
    if not tuned.meets:
        raise typer.Exit(UNMET)

"""The `mrt` command: one module a command."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

from mrt.cli import compare, compile, export, inspect, report, run, tune, verify
from mrt.cli.app import UNMET, app

__all__ = ["UNMET", "app", "main"]

COMMANDS: Mapping[str, Callable[..., None]] = {
    "run": run.run,
    "tune": tune.tune,
    "verify": verify.verify,
    "report": report.report,
    "compare": compare.compare,
    "inspect": inspect.inspect,
    "compile": compile.compile_,
    "export": export.export,
}
"""The commands, in the order in which the help lists them."""

for name, command in COMMANDS.items():
    app.command(name)(command)


def main() -> None:
    """The entry point of the command."""
    _use_all_cores()
    sys.exit(app())


def _use_all_cores() -> None:
    """By itself TVM takes half of the logical cores; it must be told before it starts its threads."""
    if "TVM_NUM_THREADS" not in os.environ and "OMP_NUM_THREADS" not in os.environ:
        os.environ["TVM_NUM_THREADS"] = str(len(os.sched_getaffinity(0)))
        os.environ.setdefault("TVM_BIND_THREADS", "0")

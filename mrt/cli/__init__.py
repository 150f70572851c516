"""The `mrt` command: one module a command."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Mapping
from typing import NoReturn

try:
    from mrt.cli import compare, compile, export, inspect, quantize, report, run, tune, verify
    from mrt.cli.app import INTERRUPTED, UNMET, app
except KeyboardInterrupt:  # before there is an application that would say so
    print("interrupted", file=sys.stderr)
    os._exit(130)

__all__ = ["UNMET", "app", "main"]

CUT_OFF = 120
"""The status with which Python ends where what it wrote was not taken."""
COMMANDS: Mapping[str, Callable[..., None]] = {
    "quantize": quantize.quantize,
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


def main() -> NoReturn:
    """The entry point of the command."""
    _use_all_cores()
    try:
        app()
        status: object = 0
    except SystemExit as ended:
        status = ended.code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        status = INTERRUPTED
    _end(status)


def _end(status: object) -> NoReturn:
    """Ends the process at once, without waiting for threads.

    An interrupted run leaves some at work. And TVM's own, as they end, give their turn away 300,000 times before they
    look whether to stop: on a busy machine that takes minutes.
    """
    code = status if isinstance(status, int) else int(status is not None)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # the reader is gone, and takes no message of it
            code = code or CUT_OFF
    os._exit(code)


def _use_all_cores() -> None:
    """By itself TVM takes half of the logical cores; it must be told before it starts its threads."""
    if "TVM_NUM_THREADS" not in os.environ and "OMP_NUM_THREADS" not in os.environ:
        os.environ["TVM_NUM_THREADS"] = str(len(os.sched_getaffinity(0)))
        os.environ.setdefault("TVM_BIND_THREADS", "0")

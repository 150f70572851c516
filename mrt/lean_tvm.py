"""TVM, loaded without what it would load or look for in vain, which takes four fifths of the time. A module that may be
the first to load TVM imports this before.

PyTorch: TVM imports it wherever it is installed, only to know its tensors when it is given one, and it takes 200 MiB of
memory. Tensors of a PyTorch that is imported later reach TVM by DLPack all the same.

Other devices than CPUs, and sessions of many processes (`tvm.runtime.disco`): TVM asks itself for what is not there,
and its first error in a process takes as long as half of the rest, since the symbols of all libraries are read for a
traceback that nobody sees. A variable of the environment keeps it from the first, unless somebody has set that; with
the second it goes on without, as it does after the error.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from mrt.collector import paused_collector

OPTIONAL = ("torch", "tvm.runtime.disco")
BACKENDS = "TVM_DEVICE_BACKEND_AUTOLOAD"
"""TVM's variable: "0" keeps it from loading its code for GPUs and other devices, and what plug-ins add to these."""


def _load_tvm() -> None:
    modules: dict[str, Any] = sys.modules
    absent = [name for name in OPTIONAL if name not in modules]
    modules.update(dict.fromkeys(absent))  # None is what `import` takes for a package that is not installed
    is_asked = BACKENDS in os.environ
    os.environ.setdefault(BACKENDS, "0")
    try:
        with paused_collector():
            import tvm  # noqa: F401
    finally:
        if not is_asked:
            del os.environ[BACKENDS]
        for name in absent:
            del modules[name]


_load_tvm()
import tvm  # noqa: E402 - only now

__all__ = ["tvm"]

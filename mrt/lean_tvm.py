"""TVM, loaded without PyTorch where nobody has loaded that yet.

TVM imports PyTorch wherever it is installed, only to know its tensors when it is given one: 200 MiB of memory and half
of the time that loading TVM takes. Tensors of a PyTorch that is imported later reach TVM by DLPack all the same.
"""

from __future__ import annotations

import sys
from typing import Any

OPTIONAL = "torch"


def _load_tvm() -> None:
    loaded: dict[str, Any] = sys.modules
    if OPTIONAL in loaded:
        import tvm as _
    else:
        loaded[OPTIONAL] = None  # what `import` takes for a package that is not installed
        try:
            import tvm as _  # noqa: F401
        finally:
            del loaded[OPTIONAL]


_load_tvm()

"""What the bits of results depend on besides the work: the versions of libraries, and the CPU."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from mrt.cpu_flags import own_flags
from mrt.errors import ClusterError
from mrt.lean_tvm import tvm
from mrt.plugins import packages
from mrt.version import __version__

VECTOR_FLAGS = ("amx", "asimd", "avx", "f16c", "fma", "sse", "ssse", "sve")
"""How those features of a CPU are called, by Linux, by which libraries choose how they add and round floats."""

Environment = Mapping[str, str]
"""What bits depend on, by what it is called."""


@lru_cache(maxsize=1)
def environment() -> Environment:
    """That of this process."""
    vectors = sorted(flag for flag in own_flags() if flag.startswith(VECTOR_FLAGS))
    return {
        "MRT": __version__,
        "plug-ins": ", ".join(packages()) or "none",
        "Python": ".".join(map(str, sys.version_info[:2])),
        "NumPy": np.__version__,
        "TVM": tvm.__version__,
        "C library": " ".join(platform.libc_ver()),
        "processor": f"{platform.machine()} {tvm.target.codegen.llvm_get_system_cpu()}",
        "vector instructions": " ".join(vectors) or "unknown",
    }


def refuse_other(needed: Environment, name: str) -> None:
    """ClusterError where this process, of a worker called so, would make other bits than one of the environment."""
    own = environment()
    differ = [what for what in needed if own.get(what) != needed[what]]
    if differ:
        what = differ[0]
        raise ClusterError(
            f"worker {name} has {what} {own.get(what, 'unknown')}, here it is {needed[what]}; results might differ in "
            f"bits: start workers with the same packages on machines with the same CPU"
        )

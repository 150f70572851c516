"""MRT's errors, known to TVM: one that is raised in a pass comes out of it as what it is, else as a RuntimeError."""

from __future__ import annotations

from mrt import errors
from mrt.lean_tvm import tvm

_ERRORS: tuple[type[errors.MRTError], ...] = (errors.MRTError, *errors.MRTError.__subclasses__())
for _error in _ERRORS:
    tvm.error.register_error(f"mrt.{_error.__name__}", _error)

"""TVM's schedules, of which each step is done without looking up what types its arguments have."""

from __future__ import annotations

from typing import Any

from tvm import s_tir


class Plan(s_tir.Schedule):  # type: ignore[misc]
    """A schedule whose methods are those that TVM wraps to compare arguments with annotations.

    That took as long as many of the steps. A wrong argument fails in TVM's own code.
    """


def _unwrap(name: str, method: Any) -> None:
    if hasattr(method, "__wrapped__"):
        setattr(Plan, name, method.__wrapped__)


for _name, _method in vars(s_tir.Schedule).items():
    _unwrap(_name, _method)

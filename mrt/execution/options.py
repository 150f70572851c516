"""The options of a cluster."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator
from typing_extensions import Self

from mrt.options import Options

SCHEMES = ("tcp://", "tls://", "ws://", "wss://", "ucx://")
"""How addresses of a Dask scheduler begin."""


def _address(value: str) -> str:
    if not value.startswith(SCHEMES) or not value.partition("://")[2]:
        raise ValueError(
            f"the address of a Dask scheduler is needed, such as tls://10.0.0.1:8786 ({', '.join(SCHEMES)})"
        )
    return value


class ClusterConfig(Options):
    """The `cluster` section: who does the work instead of this process's threads. Results are the same.

    address: of the scheduler of a Dask cluster, such as tls://10.0.0.1:8786. processes: workers that are started on
    this machine instead, and ended with the run. patience: seconds after which a worker that does not finish a part of
    the work is given up.
    """

    address: Annotated[str, AfterValidator(_address)] | None = None
    processes: int | None = Field(default=None, ge=1, le=1024, strict=True)
    patience: float = Field(default=600.0, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if (self.address is None) == (self.processes is None):
            raise ValueError("either address or processes is needed")
        return self

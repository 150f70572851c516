"""What code is made for and how much is tried for it: the keys of `compile.target` and of `compile.tune`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from mrt.errors import CompilationError, ConfigError
from mrt.messages import short
from mrt.options import Options

NATIVE = "native"
"""The name of this machine's CPU."""


def _feature(value: Any) -> Any:
    if not isinstance(value, str) or not re.fullmatch(r"[+-]?[a-z0-9][a-z0-9_.-]*", value):
        raise ValueError("LLVM's name of a feature is needed, such as avx512vnni, or -amx-int8 to do without it")
    return value


class TargetConfig(Options):
    """A CPU that code is made for, by the keys of `compile.target`.

    kind: TVM's; code is made by LLVM. mcpu: LLVM's name of the CPU, or `native`, this machine's with the features that
    its operating system allows; that is the default unless `mtriple` names other machines. mtriple: LLVM's triple, this
    machine's by default. features: LLVM's names of what the CPU has beyond its name, or after a `-` of what is not to
    be used. threads: how many cores the code is made for, by default those that this process may use; code for one
    starts no threads. linker: the C++ compiler that makes a shared library of the code, a program on PATH or its path;
    by default this machine's, for other machines the one that is called by their triple.
    """

    kind: Literal["llvm"] = "llvm"
    mcpu: Annotated[str, Field(min_length=1)] | None = None
    mtriple: Annotated[str, Field(min_length=1)] | None = None
    features: tuple[Annotated[str, BeforeValidator(_feature)], ...] = ()
    threads: Annotated[int, Field(ge=1, strict=True)] | None = None
    linker: Annotated[str, Field(min_length=1)] | None = None

    @property
    def is_native(self) -> bool:
        """Whether code is made for the CPU of this machine."""
        return self.mcpu == NATIVE or (self.mcpu is None and self.mtriple is None)


class TuneConfig(Options):
    """The `compile.tune` section. trials: how many tilings of each kernel are measured, at most."""

    trials: Annotated[int, Field(ge=1, strict=True)]


Target = str | Mapping[str, Any] | TargetConfig
"""How a caller names a target: `native`, `llvm`, which is the same, or the keys, as a mapping or as JSON text."""


def keys_of(target: Target) -> Any:
    """What `TargetConfig` validates, for any form of a target; ValueError for a text that is none."""
    if not isinstance(target, str):
        return target
    if target in (NATIVE, "llvm"):
        return {}
    if not target.lstrip().startswith("{"):
        raise ValueError(f"native, or a mapping of the keys {', '.join(TargetConfig.model_fields)}, is needed")
    return json.loads(target)


def parse_target(target: Target) -> TargetConfig:
    """The target that a caller names; CompilationError naming every key that is wrong, and what is needed."""
    if isinstance(target, TargetConfig):
        return target
    try:
        return TargetConfig.model_validate(keys_of(target))
    except (ConfigError, ValueError) as error:
        raise CompilationError(f"target {short(target)}: {error}") from None

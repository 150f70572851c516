"""What Linux says of a CPU, and a refusal of code whose instructions it lacks: running that would end the process."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from mrt.errors import CompilationError

NAMES = {
    **{"neon": "asimd", "dotprod": "asimddp", "rdm": "asimdrdm"},
    **{"sse3": "pni", "sse4.1": "sse41", "sse4.2": "sse42", "bmi": "bmi1", "lzcnt": "abm"},
}
"""What Linux calls a feature, where its name is not LLVM's."""


def check_runs_here(features: Collection[str]) -> None:
    """CompilationError where this machine's CPU lacks some of the features, by LLVM's names, as far as Linux tells."""
    flags = own_flags()
    lacking = [feature for feature in features if flags and not is_flagged(feature, flags)]
    if lacking:
        raise CompilationError(
            f"the code uses {', '.join(lacking)}, which this machine's CPU lacks; compile for this machine (target "
            f"native), or for a CPU that has no more than it"
        )


@lru_cache(maxsize=1)
def own_flags() -> Collection[str]:
    """`flags_of` this machine."""
    return flags_of(cpuinfo())


def cpuinfo() -> str:
    """Linux' text of this machine's CPU, "" elsewhere."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def is_flagged(feature: str, flags: Collection[str]) -> bool:
    """Whether a feature, by LLVM's name, is among `flags_of` a CPU."""
    return NAMES.get(feature, feature.replace("-", "")) in flags


def flags_of(text: str) -> set[str]:
    """The features in Linux' text of a CPU, without underscores; nothing where it does not say."""
    for line in text.splitlines():
        if line.startswith(("flags", "Features")):
            return {flag.replace("_", "") for flag in line.partition(":")[2].split()}
    return set()

"""What every reader refuses of a whole model, in the same words: dynamic sizes, operators that are not covered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mrt.errors import GraphError

_NAMES_SHOWN = 3


def check_batch(batch: int) -> None:
    """GraphError where a batch has no sample."""
    if batch < 1:
        raise GraphError(f"batch is {batch}; at least 1 is needed")


def check_static(inputs: Sequence[tuple[str, Sequence[int | None]]], means: str) -> None:
    """GraphError listing every size of an input that is not known.

    inputs: name and sizes of each, None where a size is dynamic; `means`: what fixes sizes in this format.
    """
    dynamic = [
        f"input {name} has the dynamic axis {axis}"
        for name, sizes in inputs
        for axis, size in enumerate(sizes)
        if size is None
    ]
    if dynamic:
        raise GraphError(f"{'; '.join(dynamic)}; only axis 0, the batch, may be dynamic: fix the others {means}")


def list_uncovered(title: str, uncovered: Mapping[str, Sequence[str]], advice: str) -> str:
    """The operators that no converter covers, the most frequent first.

    uncovered: for each operator what the nodes that use it are called; `advice`: what to do in this format.
    """
    lines = [
        f"{operator} ×{len(names)} ({', '.join(names[:_NAMES_SHOWN])}{', …' if len(names) > _NAMES_SHOWN else ''})"
        for operator, names in sorted(uncovered.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    return f"{title} uses {len(lines)} operator{'s' * (len(lines) > 1)} not covered: {'; '.join(lines)}; {advice}"

"""What every reader refuses, in the same words: tensors too large, operators that are not covered."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from mrt.errors import GraphError

_NAMES_SHOWN = 3

MAX_ELEMENTS = 2**31
"""A tensor of more elements is taken for a mistake of the file."""

MAX_MADE = 2**24
"""So many elements a constant may have that no array of the file holds: a few numbers may ask for any amount."""


def check_size(label: str, shape: Sequence[int], limit: int = MAX_ELEMENTS) -> None:
    """GraphError where a tensor of this shape is too large to be meant, or has a negative length."""
    # An axis of length 0 makes no other axis small.
    if min(shape, default=0) < 0 or math.prod(max(size, 1) for size in shape) > limit:
        raise GraphError(f"{label}: a tensor of shape {tuple(shape)} is needed; at most {limit} elements are allowed")


def list_uncovered(title: str, uncovered: Mapping[str, Sequence[str]], advice: str) -> str:
    """The operators that no converter covers, the most frequent first.

    uncovered: for each operator what the nodes that use it are called; `advice`: what to do in this format.
    """
    lines = [
        f"{operator} ×{len(names)} ({', '.join(names[:_NAMES_SHOWN])}{', …' if len(names) > _NAMES_SHOWN else ''})"
        for operator, names in sorted(uncovered.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    return f"{title} uses {len(lines)} operator{'s' * (len(lines) > 1)} not covered: {'; '.join(lines)}; {advice}"

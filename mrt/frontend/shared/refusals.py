"""What every reader refuses, in the same words: tensors too large, operators that are not covered."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence

from mrt.errors import GraphError
from mrt.frontend.shared.final_selection import is_layer
from mrt.frontend.shared.remedies import remedies
from mrt.frontend.shared.split import FileOperator, cut_before, first_of
from mrt.messages import split_option

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


def list_uncovered(
    title: str,
    uncovered: Mapping[str, Sequence[str]],
    advice: str,
    operators: Sequence[FileOperator] = (),
    outputs: Sequence[Hashable] = (),
    shown: Mapping[str, str] | None = None,
) -> str:
    """The operators that no converter covers, the most frequent first, what is known of them, and the option that ends
    the model before them.

    uncovered: for each operator what the nodes that use it are called; `advice`: what to do in this format. operators,
    outputs: of the model, where it can be cut while it is read. shown: more than the names, where something is known of
    the nodes.
    """
    known = shown or {}
    lines = [
        f"{operator} ×{len(names)} ({', '.join(known.get(name, name) for name in names[:_NAMES_SHOWN])}"
        f"{', …' if len(names) > _NAMES_SHOWN else ''})"
        for operator, names in sorted(uncovered.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    listed = f"{title} uses {len(lines)} operator{'s' * (len(lines) > 1)} not covered: {'; '.join(lines)}"
    return "; ".join([listed, *remedies(uncovered), advice, *_end_before(uncovered, operators, outputs)])


def _end_before(
    uncovered: Mapping[str, Sequence[str]], operators: Sequence[FileOperator], outputs: Sequence[Hashable]
) -> list[str]:
    """The option that ends the model before the first uncovered operators; none where little would be left to do: one
    operator, or less than half of them and no layer."""
    names = first_of(operators, uncovered)
    kept = cut_before(operators, outputs, names).kept
    is_little = len(kept) <= 1 or (2 * len(kept) < len(operators) and not any(is_layer(each.kind) for each in kept))
    if not names or is_little:
        return []
    return [f"to end it before them, with {len(kept)} of its {len(operators)} operators: {split_option(names)}"]

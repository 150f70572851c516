"""Which tests `make test` runs, and which `make test-all` alone: see CONTRIBUTING.md."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import pytest


def exhaustive(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """Those marked so, and of a test marked `sampled(n)` all but one in n of its cases.

    These lie on a diagonal: the places of a case's values in the lists of its parameters add up to a multiple of n, so
    that n values of a parameter meet each value of another.
    """
    seen: dict[Hashable, list[Hashable]] = {}
    found = set()
    for item in items:
        marker = item.get_closest_marker("sampled")
        if item.get_closest_marker("exhaustive") or (marker and sum(_places(item, seen)) % marker.args[0]):
            found.add(item)
    return found


def _places(item: Any, seen: dict[Hashable, list[Hashable]]) -> list[int]:
    """Of each parameter's value, or of those that are given together, in the order in which they come."""
    values = item.callspec.params
    together = [marker.args[0] for marker in item.iter_markers("parametrize")]
    groups = [[n.strip() for n in names.split(",")] if isinstance(names, str) else list(names) for names in together]
    groups += [[name] for name in values if not any(name in group for group in groups)]  # those of fixtures
    places = []
    for group in groups:
        known = seen.setdefault((item.parent, item.originalname, *group), [])
        value = tuple(id(values[name]) for name in group)
        if value not in known:
            known.append(value)
        places.append(known.index(value))
    return places

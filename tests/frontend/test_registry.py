"""Converters found by the operator that they convert."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mrt.errors import GraphError
from mrt.frontend.shared.registry import Converters


def test_one_converter_for_each_operator() -> None:
    converters: Converters[Callable[[int], int]] = Converters("Test")
    assert converters.register("neg", "minus")(int.__neg__) is int.__neg__
    assert converters.find("neg") is converters.find("minus") is int.__neg__
    assert converters.find("pos") is None
    with pytest.raises(GraphError, match="two converters for the Test operator minus"):
        converters.register("minus")(int.__pos__)

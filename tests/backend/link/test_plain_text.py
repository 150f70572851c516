"""The text of plain data: one for each value, and none for what is not plain."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from mrt.backend.link.plain_text import plain_text
from mrt.backend.memory.storage import Storage
from mrt.backend.te.rounding import Rounding
from mrt.symbol import TensorType

TYPE = TensorType((1, 2), "int8")
VALUES: tuple[Any, ...] = (
    *(None, "None", 1, True, 1.0, "1", "1,1", (1, 1), (1,), ((1,),), (), "()", {}, {1: 2}, {1: 2, 3: 4}, {"1": 2}),
    *(0.0, -0.0, float("inf"), 0.1, 0.1 + 2**-56, "a'b", 'a"b', "a\\n", "a\n", (("a", "b"), "c"), ("a", ("b", "c"))),
    *(*Rounding, TYPE, TensorType((1, 2), "uint8"), TensorType((1, 3), "int8"), Storage.plain(TYPE), (TYPE, TYPE)),
)


def test_values_that_differ_have_texts_that_differ() -> None:
    texts = [plain_text(value) for value in VALUES]
    assert None not in texts
    assert all(one != other for one, other in combinations(texts, 2))
    assert plain_text(TensorType((1, 2), "int8")) == plain_text(TYPE)


@dataclass(frozen=True)
class Foreign:
    value: int = 1


@pytest.mark.parametrize("value", [Foreign(), object(), print, np.int64(1), np.zeros(1), [1], {1}, b"1", 1j])
def test_anything_else_has_none(value: object) -> None:
    assert plain_text(value) is None
    assert plain_text(("a", (1, {"b": value}))) is None

"""The backend node tests of the ONNX package: every one passes, or is refused as the tables here say."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest

from mrt.frontend.onnx.constants import ALWAYS_KNOWN, FOLDABLE
from mrt.frontend.onnx.node import covered_operators
from tests.onnx_node_tests import FAILED, PASSED, REFUSED, outcomes, page

PAGE = Path(__file__).parents[2] / "docs" / "onnx_operators.md"

_TYPES = r"UINT16|UINT32|UINT64|U?INT[24]|FLOAT[48]\w+|STRING|uint\d+|int[24]|float[48]\w+"

REASONS: dict[str, str] = {
    "types that the graph has not": rf"(is|has dtype) ({_TYPES})[; ].*(signed integer|floats of 16 to 64 bits)",
    "results without elements": r"dynamic axis 1 \(SIZE1\)|has shape \(0,|the target shape \(3, 4, 0\)|is empty",
    "parts without elements": r"into \((0, 0, 0|8, 0)\) for",
    "values that are no tensors": "is no tensor; only tensors are read",
    "operators of other domains alone": "is of opset none; 9 to 28 are read|is of opset [1-8]; 9 to 28",
    "training": "which is inference,",
    "division by negative integers": "(the divisor holds|a divisor is) -[23]; 1 or more is needed",
    "remainders of integers cut towards 0": "attribute fmod is 1; 0 is needed",
    "remainders by infinity and 0": "a finite one other than 0 is needed",
    "powers of integers": "the operator has no integer form and needs floats",
    "quantization to other types": rf"the integers' type is ({_TYPES})",
    "a scale for each block": "attribute block_size is 2",
    "scales that the data decide": "computed from the data",
    "the places of maxima in windows": "output z is used",
    "peepholes": r"\(LSTM\): input P is given",
    "masks that a pad makes": "the constant value is -inf; a finite number is needed",
    "inputs left out in the middle": "is left out before others; a tensor is needed",
}
"""Why operators that are read are refused all the same, with the words of the error."""


UNCOVERED = r"operators? not covered: (.*); replace them before exporting"


def uncovered_of(words: str) -> set[str]:
    """The operators that an error lists as not covered."""
    found = re.search(UNCOVERED, words)
    return {part.split()[0] for part in found[1].split("; ")} if found else set()


def test_nothing_fails() -> None:
    assert [f"{ended.case.name}: {ended.words}" for ended in outcomes() if ended.kind == FAILED] == []


def test_every_refusal_says_why() -> None:
    """It names operators that have no converter, or has the words of a reason; and every reason has a test."""
    readable = covered_operators() | ALWAYS_KNOWN
    unknown, used = [], set()
    for ended in outcomes():
        uncovered = uncovered_of(ended.words)
        if ended.kind != REFUSED or (uncovered and not uncovered & readable):
            continue
        reasons = [reason for reason, words in REASONS.items() if re.search(words, ended.words)]
        used |= set(reasons)
        if not reasons:
            unknown.append(f"{ended.case.name} is refused: {ended.words}")
    assert unknown == []
    assert used == set(REASONS)


def test_most_tests_pass() -> None:
    """Every operator that is read has one that does."""
    passing = {ended.case.operator for ended in outcomes() if ended.kind == PASSED}
    assert len(outcomes()) > 1800 and sum(ended.kind == PASSED for ended in outcomes()) > 1250
    # The package has no test of GlobalLpPool, and one of DynamicQuantizeLinear that no static network can pass.
    assert covered_operators() - passing <= {"GlobalLpPool", "DynamicQuantizeLinear"}
    assert passing >= FOLDABLE


def test_the_page_is_what_the_tests_give() -> None:
    written = PAGE.read_text()
    if f"ONNX {onnx.__version__} brings" not in written:
        pytest.skip(f"docs/onnx_operators.md is of another ONNX than {onnx.__version__}")
    assert written == page(), "run python -m tests.onnx_node_tests > docs/onnx_operators.md"

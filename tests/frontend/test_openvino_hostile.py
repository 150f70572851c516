"""Damaged and hostile OpenVINO files: one MRTError, at once, in little memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

openvino = pytest.importorskip("openvino")
import hostile  # noqa: E402
from hostile import outcome  # noqa: E402
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from openvino import opset13 as ops  # noqa: E402
from openvino_models import Case, ints  # noqa: E402

from mrt.errors import GraphError, ModelFileError, MRTError, UnsupportedOperatorError  # noqa: E402
from mrt.frontend.openvino import from_openvino  # noqa: E402


def network(x: Any) -> Any:
    """A convolution with weights of 8 bits, FakeQuantize, pooling and a dense layer."""
    integers = ops.constant(np.arange(-27, 27, dtype=np.int8).reshape(3, 2, 3, 3))
    weight = ops.multiply(ops.convert(integers, "f32"), ops.constant(np.float32([[[[0.1]]], [[[0.2]]], [[[0.3]]]])))
    ends = [ops.constant(np.float32(end)) for end in (0, 2, 0, 2)]
    hidden = ops.relu(ops.convolution(x, weight, [1, 1], [1, 1], [1, 1], [1, 1]))
    hidden = ops.fake_quantize(hidden, *ends, 256)
    hidden = ops.avg_pool(hidden, [2, 2], [0, 0], [0, 0], [2, 2], True)
    rows = ops.reshape(hidden, ints(0, -1), True)
    return ops.matmul(rows, ops.constant(np.ones((5, 12), np.float32)), False, True)


@cache
def whole(folder: Path) -> tuple[bytes, bytes]:
    path = folder / "whole.xml"
    openvino.save_model(Case(network, ((1, 2, 4, 4),)).model(), path, compress_to_fp16=False)
    return path.read_bytes(), path.with_suffix(".bin").read_bytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("openvino")


def reading(folder: Path, text: bytes, weights: bytes) -> Callable[[], object]:
    path = folder / "changed.xml"
    path.write_bytes(text)
    path.with_suffix(".bin").write_bytes(weights)
    return lambda: from_openvino(path)


def test_the_whole_one_is_read(folder: Path) -> None:
    reading(folder, *whole(folder))()


def test_a_text_that_ends_early(folder: Path) -> None:
    text, weights = whole(folder)
    for length in range(0, len(text.rstrip()) - 1, 97):
        with hostile.bounded(), pytest.raises(MRTError):
            reading(folder, text[:length], weights)()


def test_constants_that_end_early(folder: Path) -> None:
    text, weights = whole(folder)
    for length in (*range(0, 16), len(weights) // 2, len(weights) - 1):
        with hostile.bounded(), pytest.raises(ModelFileError, match="no whole OpenVINO IR"):
            reading(folder, text, weights[:length])()


NUMBERS = [
    b"0",
    b"-1",
    b"1",
    b"7",
    b"100000",
    b"4294967295",
    b"9223372036854775807",
    b"18446744073709551615",
    b"",
    b"?",
]


@given(st.data())
def test_numbers_that_were_changed(folder: Path, data: st.DataObject) -> None:
    text, weights = whole(folder)
    spans = [match.span() for match in re.finditer(rb"\d+", text)]
    for _ in range(data.draw(st.integers(1, 3))):
        start, end = data.draw(st.sampled_from(spans))
        text = text[:start] + data.draw(st.sampled_from(NUMBERS)) + text[end:]
    with hostile.bounded(256):
        outcome(reading(folder, text, weights))


@given(st.data())
def test_bytes_that_were_changed(folder: Path, data: st.DataObject) -> None:
    text, weights = (bytearray(part) for part in whole(folder))
    for part in (text, weights):
        for _ in range(data.draw(st.integers(0, 3))):
            part[data.draw(st.integers(0, len(part) - 1))] = data.draw(st.integers(0, 255))
    with hostile.bounded(256):
        outcome(reading(folder, bytes(text), bytes(weights)))


@given(st.data())
def test_parts_that_were_moved(folder: Path, data: st.DataObject) -> None:
    """Lines are left out, given twice or exchanged: layers and edges that are missing, cyclic or twice there."""
    text, weights = whole(folder)
    lines = text.split(b"\n")
    for _ in range(data.draw(st.integers(1, 3))):
        first, second = (data.draw(st.integers(0, len(lines) - 1)) for _ in range(2))
        kind = data.draw(st.sampled_from(["drop", "copy", "swap"]))
        if kind == "drop":
            del lines[first]
        elif kind == "copy":
            lines.insert(second, lines[first])
        else:
            lines[first], lines[second] = lines[second], lines[first]
    with hostile.bounded(256):
        outcome(reading(folder, b"\n".join(lines), weights))


def test_entities_are_not_expanded(folder: Path) -> None:
    """Neither those that grow without end nor those that name a file."""
    text, weights = whole(folder)
    kinds = b'<!ENTITY a "aaaaaaaaaa">' + b"".join(
        b'<!ENTITY %c "%s">' % (98 + i, b"&%c;" % (97 + i) * 10) for i in range(12)
    )
    text = text.replace(b"?>", b"?><!DOCTYPE net [" + kinds + b'<!ENTITY f SYSTEM "file:///etc/hostname">]>', 1)
    text = text.replace(b'name="x0"', b'name="&m;&f;"')
    with hostile.bounded():
        outcome(reading(folder, text, weights))


def test_shapes_that_no_tensor_has() -> None:
    """A few numbers ask for any amount of memory."""

    def grown(x: Any) -> Any:
        return ops.add(ops.broadcast(x, ints(2**20, 2**20, 4)), ops.constant(np.float32(1)))

    def folded(x: Any) -> Any:
        return ops.add(x, ops.reduce_sum(ops.broadcast(ops.constant(np.float32(1)), ints(2**20, 2**12)), ints(0, 1)))

    with hostile.bounded(), pytest.raises(GraphError, match="elements are allowed"):
        from_openvino(Case(grown, ((1, 1, 4),)).model())
    with hostile.bounded(), pytest.raises(GraphError, match="elements are allowed"):
        from_openvino(Case(folded, ((4,),)).model())
    with hostile.bounded(), pytest.raises(GraphError, match="elements are allowed"):
        from_openvino(Case(ops.relu, ((2**20, 2**20),)).model())


def test_control_flow_is_refused_by_name() -> None:
    def build(x: Any) -> Any:
        inner = [ops.parameter([2], np.float32) for _ in range(2)]
        bodies = [
            openvino.Model([ops.result(make(p))], [p], "body")
            for make, p in zip((ops.relu, ops.exp), inner, strict=True)
        ]
        chosen = ops.if_op(ops.greater(ops.reduce_max(x, ints(0)), ops.constant(np.float32(0))).output(0))
        for set_body, body in zip((chosen.set_then_body, chosen.set_else_body), bodies, strict=True):
            set_body(body)
        chosen.set_input(x.output(0), *inner)
        return [chosen.set_output(*(body.results[0] for body in bodies))]

    with pytest.raises(UnsupportedOperatorError, match="operator not covered: If"):
        from_openvino(Case(build, ((2,),)).model())


def test_chains_of_many_operators() -> None:
    def build(x: Any) -> Any:
        for _ in range(3_000):
            x = ops.relu(x)
        return x

    assert len(from_openvino(Case(build, ((2,),)).model()).operators) == 3_000

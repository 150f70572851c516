"""ONNX models damaged at random: read, or refused by one MRTError."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import onnx
import pytest
from google.protobuf.message import DecodeError
from hostile import bounded, outcome
from hostile_onnx import HUGE
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper
from small_onnx_models import MODELS

from mrt.frontend.onnx import from_onnx

CONTENTS = [model.SerializeToString() for model in MODELS.values()]


@pytest.mark.parametrize("name", MODELS)
def test_the_models_of_the_fuzz_are_read(name: str) -> None:
    assert from_onnx(MODELS[name]).outputs[0].name == "y"


def read_bytes(content: bytes) -> None:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except (DecodeError, ValueError):
        return
    outcome(lambda: from_onnx(model))


@given(st.data())
def test_mutated_bytes(data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from(CONTENTS)))
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(0, len(content) - 1))
        kind = data.draw(st.sampled_from(["set", "cut", "put"]))
        if kind == "set":
            content[place] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del content[place : place + data.draw(st.integers(1, 9))]
        else:
            content[place:place] = data.draw(st.binary(max_size=9))
    with bounded(500):
        read_bytes(bytes(content))


@given(st.binary(max_size=200))
def test_random_bytes(content: bytes) -> None:
    read_bytes(content)
    read_bytes(CONTENTS[0][:2] + content)


NUMBERS = st.one_of(
    st.sampled_from([0, 1, -1, 2, 3, 7, 2**20, 2**31 - 1, 2**40, HUGE, -(2**63)]), st.integers(-(2**63), 2**63 - 1)
)
TEXTS = st.one_of(st.sampled_from(["", "x", "y", "w", "Relu", "Add", "Conv", "Reshape", "Loop"]), st.text(max_size=5))
FLOATS = st.one_of(st.sampled_from([0.0, -1.0, 1e-45, 1e38, float("inf"), float("nan")]), st.floats(width=32))


def fields(message: Any) -> Iterator[tuple[Any, Any]]:
    """Every field that is set of a message and of those inside it."""
    stack = [message]
    while stack:
        item = stack.pop()
        for descriptor, value in item.ListFields():
            yield item, descriptor
            if descriptor.message_type is not None:
                stack += value if descriptor.is_repeated else [value]


VALUES: Mapping[int, st.SearchStrategy[Any]] = {1: FLOATS, 2: FLOATS, 3: NUMBERS, 9: TEXTS, 12: st.binary(max_size=9)}
"""What is put into a field, by protobuf's number of its type."""


def mutate(model: onnx.ModelProto, data: st.DataObject) -> None:
    """Changes a field of the model, drops it, or an item of it, or doubles it."""
    found = [*fields(model)]
    if not found:
        return
    item, descriptor = data.draw(st.sampled_from(found))
    change = data.draw(st.sampled_from(["set", "set", "set", "clear", "double"]))
    if change == "clear":
        item.ClearField(descriptor.name)
        return
    strategy = VALUES.get(descriptor.type, st.integers(-(2**31), 2**31 - 1))
    if not descriptor.is_repeated:
        if change == "set" and descriptor.message_type is None:
            try:
                setattr(item, descriptor.name, data.draw(strategy))
            except ValueError:
                item.ClearField(descriptor.name)
        return
    values = getattr(item, descriptor.name)
    place = data.draw(st.integers(0, len(values) - 1))
    if change == "double" or descriptor.message_type is not None:
        if descriptor.message_type is not None:
            values.add().CopyFrom(values[place])
        else:
            values.append(values[place])
        return
    try:
        values[place] = data.draw(strategy)
    except ValueError:
        del values[place]


@given(st.data())
def test_mutated_fields(data: st.DataObject) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(data.draw(st.sampled_from([*MODELS.values()])))
    for _ in range(data.draw(st.integers(1, 4))):
        mutate(model, data)
    with bounded(500):
        outcome(lambda: from_onnx(model))


@given(st.data())
def test_mutated_constants(data: st.DataObject) -> None:
    """Numbers of shapes, pads, scales and their like that nobody means."""
    model = onnx.ModelProto()
    model.CopyFrom(data.draw(st.sampled_from([*MODELS.values()])))
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor).copy()
        if array.size and array.size < 8 and array.dtype.kind in "if" and data.draw(st.booleans()):
            numbers = NUMBERS if array.dtype.kind == "i" else FLOATS
            array.reshape(-1)[data.draw(st.integers(0, array.size - 1))] = data.draw(numbers)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    with bounded(500):
        outcome(lambda: from_onnx(model))


def test_every_node_with_every_input_left_out() -> None:
    for model in MODELS.values():
        for place, item in enumerate(model.graph.node):
            for index, kind in itertools.product(range(len(item.input)), ("missing", "data")):
                changed = onnx.ModelProto()
                changed.CopyFrom(model)
                changed.graph.node[place].input[index] = "" if kind == "missing" else "x"
                outcome(_reader(changed))


def _reader(model: onnx.ModelProto) -> Callable[[], object]:
    return lambda: from_onnx(model)

"""Damage to the fields of a protobuf message, such as an ONNX model, that leaves it a message."""

from __future__ import annotations

from typing import Any

import onnx
from google.protobuf.message import DecodeError

from tests.fuzz.draw import Draw
from tests.fuzz.mutation import BINARY, NAMES, NUMBERS

FLOATS = (0.0, -0.0, 0.5, -1.0, 1e-45, 1e38, float("inf"), float("-inf"), float("nan"))
OPERATORS = ("", "Add", "Conv", "Reshape", "Gather", "Loop", "If", "Shape", "QuantizeLinear", "NoSuchOperator")
DEEPEST = 12


def damaged_model(draw: Draw, content: bytes) -> bytes:
    """An ONNX model, one to three fields of which are changed wherever they stand."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
        for _ in range(draw.integer(1, 3)):
            _change(draw, _somewhere(draw, model))
        return bytes(model.SerializeToString())
    except (DecodeError, ValueError):
        return draw.choice(BINARY)(draw, content)


def _is_repeated(value: Any) -> bool:
    return hasattr(value, "append")


def _somewhere(draw: Draw, message: Any) -> Any:
    """A message inside of this one, or itself."""
    for _ in range(DEEPEST):
        inner = [value for field, value in message.ListFields() if field.message_type is not None]
        if not inner or draw.chance(0.1):
            break
        value = draw.choice(inner)
        message = draw.choice(value) if _is_repeated(value) else value
    return message


def _change(draw: Draw, message: Any) -> None:
    """One field, mostly one that is set, is cleared, repeated, put in another order, or given another value."""
    given = [field for field, _ in message.ListFields()]
    fields = given if given and draw.chance(0.8) else list(message.DESCRIPTOR.fields)
    if not fields:
        return
    field = draw.choice(fields)
    value = getattr(message, field.name)
    kind = draw.integer(0, 4)
    if kind == 0:
        message.ClearField(field.name)
    elif not _is_repeated(value):
        if field.message_type is None:
            setattr(message, field.name, _other(draw, value))
    elif len(value) == 0:
        _append(draw, value)
    elif kind == 1:
        del value[draw.integer(0, len(value) - 1)]
    elif kind == 2:
        value.append(value[draw.integer(0, len(value) - 1)])
    elif kind == 3:
        value.reverse()
    elif field.message_type is None:
        value[draw.integer(0, len(value) - 1)] = _other(draw, value[0])


def _append(draw: Draw, values: Any) -> None:
    """A first value, of whatever type they have."""
    for value in (0, 0.0, "", b""):
        try:
            return values.append(_other(draw, value))
        except TypeError:
            continue
    values.add()


def _other(draw: Draw, value: Any) -> Any:
    """Another value of the same type; ValueError where the field does not hold it."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return draw.choice(FLOATS)
    if isinstance(value, int):
        near = value + draw.choice((-1, 1))
        return near if draw.chance(0.4) else min(draw.choice(NUMBERS), 2**63 - 1)
    if isinstance(value, bytes):
        return draw.choice(BINARY)(draw, value)
    return draw.choice((*OPERATORS, *(name for name in NAMES if "\ud800" not in name)))

"""JSON that is data and not trust: read with its types, each key known and once, or refused."""

from __future__ import annotations

import json
import reprlib
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar, get_args

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from mrt.errors import ModelFileError
from mrt.symbol.interval import Array
from mrt.symbol.limits import MAX_RANK


class StrictModel(BaseModel):
    """Base of the models of files: no unknown key, no text or float for an integer, no NaN, no infinity."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, arbitrary_types_allowed=True
    )


Model = TypeVar("Model", bound=BaseModel)


def parse_json(content: bytes | str) -> Any:
    """The value of a JSON text.

    Raises ModelFileError where it is none, is no UTF-8, is nested too deeply, names a key twice, or holds NaN or an
    infinity.
    """
    try:
        text = content if isinstance(content, str) else content.decode()
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant, parse_float=_finite)
    except UnicodeDecodeError as error:
        raise ModelFileError(f"it is no UTF-8 text: {error}") from None
    except ValueError as error:
        raise ModelFileError(f"it is no JSON: {error}") from None
    except RecursionError:
        raise ModelFileError("it is nested too deeply") from None


def validated(model: type[Model], value: Any) -> Model:
    """`value` as the model; ModelFileError naming the first key that is wrong, what was found and what is needed.

    A version of the format comes first, since nothing else of another one means anything.
    """
    version = model.model_fields.get("format_version")
    if version is not None:
        check_version(value, *get_args(version.annotation))
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise ModelFileError(first_problem(error)) from None
    except RecursionError:
        raise ModelFileError("it is nested too deeply") from None


def check_version(value: Any, needed: int) -> None:
    """ModelFileError where `value` is of another version of its format."""
    found = value.get("format_version", needed) if isinstance(value, dict) else needed
    if type(found) is not int or found != needed:
        raise ModelFileError(f"it has format_version {found!r}; {needed} is needed")


def first_problem(error: ValidationError) -> str:
    """The first key that is wrong, what was found and what is needed."""
    detail = error.errors(include_url=False)[0]
    key = ".".join(map(str, detail["loc"])) or "the whole"
    if detail["type"] == "missing":
        return f"{key} is missing"
    if detail["type"] == "extra_forbidden":
        return f"{key} is no key of this format"
    return f"{key} is {reprlib.repr(detail['input'])}: {detail['msg'].removeprefix('Value error, ')}"


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(key, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {reprlib.repr(key)} stands twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} stands for a number; finite numbers are needed")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{reprlib.repr(text)} is beyond the largest float")
    return value


def _array(kinds: tuple[type, ...], dtype: type[np.generic]) -> Any:
    """A validator of a number, or of lists of numbers whose lengths agree; it gives an array with elements."""

    def read(value: Any) -> Array:
        leaves, depth = [value], 0
        while leaves and all(type(leaf) is list for leaf in leaves):
            leaves, depth = [item for leaf in leaves for item in leaf], depth + 1
            if depth > MAX_RANK:
                raise ValueError(f"lists nested at most {MAX_RANK} deep are needed")
        if not leaves or not all(type(leaf) in kinds for leaf in leaves):
            raise ValueError(f"numbers ({' or '.join(kind.__name__ for kind in kinds)}) are needed")
        try:
            return np.asarray(value, dtype)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"an array of {dtype.__name__} is needed: {error}") from None

    return read


Floats = Annotated[Any, BeforeValidator(_array((int, float), np.float64))]
"""An array of float64 from a number or nested lists of numbers."""
Integers = Annotated[Any, BeforeValidator(_array((int,), np.int64))]
"""An array of int64 from a whole number or nested lists of them."""

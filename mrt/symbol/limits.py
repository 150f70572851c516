"""What a small file may make this process allocate, and how a user allows more."""

from __future__ import annotations

import os

from mrt.errors import ConfigError

MAX_RANK = 32
"""Axes of a tensor, as many as every NumPy has."""
AMPLIFICATION = 2**10
"""How many times the elements of its inputs and parameters together an operator of a saved graph may make."""
ALWAYS_ALLOWED = 2**24
"""How many elements an operator may make however few its graph is given."""
JSON_BYTES = 2**28
"""The largest JSON file of a saved model, in bytes."""
PARAMETER_BYTES = 2**32
"""The largest file of parameters of a saved model, in bytes."""
ELEMENTS_VARIABLE, BYTES_VARIABLE = "MRT_MAX_ELEMENTS", "MRT_MAX_FILE_BYTES"
"""Environment variables by which a user allows more."""


def element_limit(given: int) -> int:
    """How many elements one operator of a saved graph may make; given: those of its inputs and parameters together."""
    return _stated(ELEMENTS_VARIABLE) or max(ALWAYS_ALLOWED, AMPLIFICATION * given)


def byte_limit(default: int) -> int:
    """The largest file that is read, in bytes."""
    return _stated(BYTES_VARIABLE) or default


def _stated(variable: str) -> int | None:
    """The number that the user sets; ConfigError where it is none."""
    text = os.environ.get(variable, "")
    if text and not (text.isascii() and text.isdigit() and int(text)):
        raise ConfigError(f"the environment variable {variable} is {text!r}; a positive whole number is needed")
    return int(text) if text else None

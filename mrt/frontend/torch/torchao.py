"""The operators by which torchao's weights become floats, known to torch whether torchao is installed or not."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch

OPERATORS = ("quantize_affine", "dequantize_affine")
_SIGNATURES = (
    "quantize_affine(Tensor input, SymInt[] block_size, Tensor scale, Tensor? zero_point, ScalarType output_dtype,"
    " Scalar? quant_min=None, Scalar? quant_max=None) -> Tensor",
    "dequantize_affine(Tensor input, SymInt[] block_size, Tensor scale, Tensor? zero_point, ScalarType input_dtype,"
    " Scalar? quant_min=None, Scalar? quant_max=None, ScalarType output_dtype=6) -> Tensor",
)
_LIBRARIES: list[Any] = []
"""What torch forgets as soon as it is collected."""


def know_torchao() -> None:
    """Makes torch know OPERATORS: as torchao says them, or by signature and shape where it is not installed.

    A signature of our own would stand in the way of torchao's, which therefore comes first.
    """
    if all(hasattr(torch.ops.torchao, name) for name in OPERATORS):
        return
    if find_spec("torchao") is not None:
        importlib.import_module("torchao.quantization.quant_primitives")
        return
    library = torch.library.Library("torchao", "FRAGMENT")
    _LIBRARIES.append(library)
    for signature in _SIGNATURES:
        library.define(signature)
    torch.library.register_fake("torchao::quantize_affine", _quantized, lib=library)
    torch.library.register_fake("torchao::dequantize_affine", _dequantized, lib=library)


def _quantized(
    input: torch.Tensor,
    block_size: Sequence[int],
    scale: torch.Tensor,
    zero_point: torch.Tensor | None,
    output_dtype: torch.dtype,
    quant_min: float | None = None,
    quant_max: float | None = None,
) -> torch.Tensor:
    return torch.empty_like(input, dtype=output_dtype)


def _dequantized(
    input: torch.Tensor,
    block_size: Sequence[int],
    scale: torch.Tensor,
    zero_point: torch.Tensor | None,
    input_dtype: torch.dtype,
    quant_min: float | None = None,
    quant_max: float | None = None,
    output_dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    return torch.empty_like(input, dtype=output_dtype)

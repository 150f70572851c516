"""What an exported file tells of its model: which one it is, and how its integers stand for real values."""

from __future__ import annotations

import json
from collections.abc import Sequence

from mrt.symbol.quantized_tensor import TensorQuantization

FORMAT_VERSION = 1
"""The version of the format of the entries."""


def describe(
    digest: str, inputs: Sequence[TensorQuantization], outputs: Sequence[TensorQuantization]
) -> dict[str, str]:
    """The description's entries by key, each a text.

    mrt.format_version   the version of these entries, 1
    mrt.digest           `digest`, the SHA-256 of the certificate
    mrt.inputs           JSON: for each input its name, shape, dtype, scale, zero_point, and lo and hi, its range
    mrt.outputs          JSON: the same of each output, in order
    """
    return {
        "mrt.format_version": str(FORMAT_VERSION),
        "mrt.digest": digest,
        "mrt.inputs": json.dumps([entry.to_json() for entry in inputs]),
        "mrt.outputs": json.dumps([entry.to_json() for entry in outputs]),
    }

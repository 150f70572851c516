"""What an operator becomes is said once."""

from __future__ import annotations

import pytest

from mrt.backend.layout.packing import packing
from mrt.backend.te.registry import compute, joining, requesting_layout, viewing
from mrt.errors import GraphError


@pytest.mark.parametrize(
    ("register", "what"),
    [
        (compute("relu"), "computes of relu"),
        (requesting_layout("Convolution"), "requests of input 0 of Convolution"),
        (viewing("Flatten", passed=lambda symbol, request: request), "views of Flatten"),
        (joining("Concat"), "ways to join the inputs of Concat"),
        (packing("Convolution", 1), "packings of input 1 of Convolution"),
    ],
)
def test_a_second_registration_is_refused(register, what: str) -> None:
    with pytest.raises(GraphError, match=f"there are two {what}; one is needed"):
        register(lambda symbol, *inputs: inputs[0])

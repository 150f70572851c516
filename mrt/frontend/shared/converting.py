"""Running a converter so that whatever goes wrong on a malformed model is one error that names the node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.shared.node import ModelNode

_Node = TypeVar("_Node", bound=ModelNode)
_Result = TypeVar("_Result")


def converted(node: _Node, convert: Callable[[_Node], _Result]) -> _Result:
    """What a converter makes of a node, its errors named after it.

    Raises UnsupportedOperatorError as the converter does, GraphError for anything else.
    """
    try:
        # What overflows is refused as a size or an attribute; NumPy's own words add nothing.
        with np.errstate(all="ignore"):
            return convert(node)
    except UnsupportedOperatorError:
        raise
    except GraphError as error:
        raise GraphError(str(error) if node.name in str(error) else f"{node.label}: {error}") from None
    except (ArithmeticError, IndexError, MemoryError, TypeError, ValueError) as error:
        # Attributes and inputs that are of the right kind and yet fit no shape.
        raise GraphError(f"{node.label}: its attributes do not fit its inputs: {error}") from None

"""FakeQuantize, by which OpenVINO, NNCF and their tools say how a network was quantized."""

from __future__ import annotations

from mrt.frontend.openvino.node import Node, converter
from mrt.frontend.shared.fake_quantize import fake_quantized
from mrt.frontend.shared.node import Value


@converter("FakeQuantize")
def fake_quantize(node: Node) -> Value:
    """Its limits broadcast by NumPy's rule, which is the default; of PDPD's, shapes that mean the same."""
    broadcast = node.text("auto_broadcast", "numpy")
    ranks = {len(node.shape(index)) for index in range(1, 5)}
    if broadcast != "numpy" and not ranks <= {0, len(node.shape(0))}:
        raise node.unsupported("attribute auto_broadcast", broadcast, "numpy")
    return fake_quantized(node, node.integer("levels"))

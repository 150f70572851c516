"""Matrix products."""

from __future__ import annotations

from mrt.frontend.relax.node import converter
from mrt.frontend.tvm.linear import matmul

converter("matmul")(matmul)

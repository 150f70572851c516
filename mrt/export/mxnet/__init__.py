"""The MXNet exporter: an integer graph as symbol JSON and a parameter file of MXNet 1.x, one exporter per operator."""

from mrt.export.mxnet.checkpoint import to_mxnet

__all__ = ["to_mxnet"]

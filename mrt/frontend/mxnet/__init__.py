"""The MXNet reader: symbol JSON and parameters of every version into a Graph, without MXNet."""

from mrt.frontend.mxnet.symbols import check_shapes, from_mxnet, read_checkpoint

__all__ = ["check_shapes", "from_mxnet", "read_checkpoint"]

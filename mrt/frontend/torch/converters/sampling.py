"""Images at the places of a grid."""

from __future__ import annotations

from tvm import relax

from mrt.frontend.torch.node import Expression, Node, converter, shape_of

_METHODS = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


@converter("grid_sampler.default", "grid_sampler_2d.default", "grid_sampler_3d.default")
def grid_sampler(node: Node) -> Expression:
    """The grid's last axis, which holds the places, is axis 1 in Relax."""
    data, grid = node.tensor("input"), node.tensor("grid")
    rank = len(shape_of(grid))
    return relax.op.image.grid_sample(
        data,
        node.emit(relax.op.permute_dims(grid, [0, rank - 1, *range(1, rank - 1)])),
        method=_METHODS[node.integer("interpolation_mode")],
        layout="NCHW" if rank == 4 else "NCDHW",
        padding_mode=_PADDINGS[node.integer("padding_mode")],
        align_corners=node.flag("align_corners"),
    )

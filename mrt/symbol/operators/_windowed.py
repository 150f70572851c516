"""What convolution and its transpose share: one to three spatial axes, groups, and what is checked of their inputs."""

from __future__ import annotations

from typing_extensions import Self

from mrt.errors import GraphError
from mrt.symbol.operators.layer import Layer
from mrt.symbol.types import TensorType, arithmetic_dtype

LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


class WindowedLayer(Layer):
    """Base of layers whose weight (channels, channels / num_group, *kernel) is laid over the data (N, C, *spatial).

    Output channels come first in the weight, or input channels, as `weight_channel_axis` says. The subclasses repeat
    the fields, since a dataclass declares its own.
    """

    kernel: tuple[int, ...]
    num_filter: int
    num_group: int
    layout: str | None

    ignored = frozenset({"workspace", "cudnn_tune", "cudnn_off"})

    def weight_groups(self) -> int:
        return self.num_group

    def part(self, outputs: int, groups: int) -> Self:
        return self._with(num_filter=outputs, num_group=groups)

    def _checked(self, x: TensorType, weight: TensorType, bias: TensorType | None) -> str:
        """The dtype of the output; GraphError where the inputs do not fit the attributes."""
        rank = len(self.kernel)
        if rank not in LAYOUTS or min(self.kernel) < 1:
            raise GraphError(f"kernel is {self.kernel}; one to three positive lengths are needed")
        if self.layout not in (None, LAYOUTS[rank]):
            raise GraphError(f"layout is {self.layout}; {LAYOUTS[rank]} is needed: transpose the data and the weight")
        if x.rank != rank + 2:
            raise GraphError(f"data is {x}; rank {rank + 2} is needed for kernel {self.kernel}")
        channels, groups = x.shape[1], self.num_group
        if groups < 1 or channels % groups or self.num_filter % groups:
            raise GraphError(f"num_group {groups} does not divide {channels} channels and num_filter {self.num_filter}")
        first, second = (channels, self.num_filter) if self.weight_channel_axis else (self.num_filter, channels)
        expected = (first, second // groups, *self.kernel)
        if weight.shape != expected:
            raise GraphError(f"weight is {weight}; shape {expected} is needed")
        if self.no_bias != (bias is None):
            raise GraphError(f"no_bias is {self.no_bias}, but a bias is {'missing' if bias is None else 'given'}")
        if bias is not None and bias.shape != (self.num_filter,):
            raise GraphError(f"bias is {bias}; shape ({self.num_filter},) is needed")
        return arithmetic_dtype(*((x, weight) if bias is None else (x, weight, bias)))

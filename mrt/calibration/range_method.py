"""How the range of a tensor is taken from its values: what a method is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from mrt.calibration.channels import ChannelObserver
from mrt.calibration.observers import Ranging
from mrt.calibration.options import CalibrationConfig


class RangeMethod(ABC):
    """What `calibrate.method` names. It needs the values of every tensor and gives their ranges.

    covers_all: whether a range goes from the least to the greatest value; then the range of a tensor that follows from
    another's, such as that behind a relu, is computed and not observed.
    """

    option: ClassVar[str] = "calibrate.method"
    covers_all: ClassVar[bool] = False

    @abstractmethod
    def observer(self, config: CalibrationConfig) -> Ranging:
        """What has seen nothing yet of a tensor; its `covered` is the range."""

    def channel_observer(self, channels: int, config: CalibrationConfig) -> ChannelObserver:
        """The same of a tensor's channels, whose ranges are cut to that of the tensor."""
        return ChannelObserver.of(channels)

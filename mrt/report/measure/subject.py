"""What is reported on: a quantized network in all its forms, the data, and the options that it was made with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mrt.calibration import Calibration
from mrt.datasets import Dataset
from mrt.model import QuantizedModel
from mrt.progress import Reporter, silent
from mrt.quantization.algorithms.algorithm import Samples
from mrt.quantization.options import QuantizationConfig
from mrt.report.layers import FloatLayer, find_layers, layer_by_symbol
from mrt.runtime import Module
from mrt.symbol import Array, Graph
from mrt.symbol.rebatch import sized


@dataclass(frozen=True, eq=False)
class Subject:
    """original, prepared: the float network as it was read, and as it was quantized. data: samples that layers are
    looked at with, at most `samples` of them, None where there are none; source: what the configuration calls them.
    completed: adds what states hold to a sample. calibration: the samples on whose end the error is simulated.

    asked: the options of quantization with the preset's; chosen: with the bits that single tensors got besides.
    observed: what calibration found. summary: that of the evaluation, empty without one. settings, seconds: as they are
    told. module_bytes: of the compiled module's file.
    """

    name: str
    file: str
    original: Graph
    prepared: Graph
    model: QuantizedModel
    module: Module | None
    data: Dataset | None
    source: str
    samples: int
    asked: QuantizationConfig
    chosen: QuantizationConfig
    observed: Calibration
    calibration: Samples | None = None
    completed: Callable[[Mapping[str, Array]], Mapping[str, Array]] = dict
    summary: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    module_bytes: int | None = None
    report: Reporter = field(default_factory=silent)

    @cached_property
    def graph(self) -> Graph:
        """The prepared network for one sample, or as many as it bakes in."""
        return sized(self.prepared, 1)

    @cached_property
    def layers(self) -> tuple[FloatLayer, ...]:
        return find_layers(self.graph)

    @cached_property
    def owner(self) -> dict[str, FloatLayer]:
        """The layer of each symbol by name."""
        return layer_by_symbol(self.layers)

"""Networks whose biases are corrected, and their calibration."""

from __future__ import annotations

import numpy as np

from mrt.calibration import Calibration, CalibrationConfig, Needs, calibrate
from mrt.quantization.algorithms.algorithm import Samples
from mrt.quantization.algorithms.bias_correction import means_around_reductions
from mrt.quantization.algorithms.sequential_bias_correction import sequential_corrections
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.plan.make import observed_tensors
from mrt.symbol import Array, Graph, GraphBuilder, NumpyRunner, Operator, TensorType
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.transform import Reshape
from tests.quantization.networks import chain

RNG = np.random.default_rng(11)
COUNT = 13
BATCH = CalibrationConfig(batch_size=4)


def options(mode: str, activation: str = "symmetric", weight: str = "symmetric", bits: int = 4) -> QuantizationConfig:
    """Few bits for the weights, so that their rounding shifts means by many steps of an accumulator."""
    return QuantizationConfig.model_validate(
        {
            "bias_correction": mode,
            "activation": {"quantizer": activation},
            "weight": {"quantizer": weight, "bits": bits},
        }
    )


def weights(*shape: int) -> Array:
    return RNG.normal(0.1, 0.5, shape).astype(np.float32)


def convolution(
    channels: int, outputs: int, kernel: int = 1, groups: int = 1, **more: object
) -> tuple[Operator, list[Array]]:
    taps = weights(outputs, channels // groups, kernel, kernel)
    made = Convolution(kernel=(kernel, kernel), num_filter=outputs, num_group=groups, no_bias=True, **more)  # type: ignore[arg-type]
    return made, [taps]


def data_for(graph: Graph, count: int = COUNT) -> Array:
    """Samples whose channels have different means, none of them 0."""
    shape = graph.inputs[0].shape[1:]
    means = np.linspace(0.3, 1.5, shape[0]).reshape(-1, *(1,) * (len(shape) - 1))
    return (RNG.normal(0, 0.5, (count, *shape)) + means).astype(np.float32)


def calibrated(graph: Graph, x: Array) -> Calibration:
    return calibrate(graph, [x], Needs(observed_tensors(graph)) | means_around_reductions(graph), BATCH, NumpyRunner())


def sequential(graph: Graph, x: Array, config: QuantizationConfig) -> dict[str, Array]:
    return sequential_corrections(graph, calibrated(graph, x), config, Samples([x], BATCH, NumpyRunner()))


SINGLE = {
    "convolution": chain((1, 6, 5, 5), convolution(6, 4, 3)),
    "stride and dilation": chain((1, 6, 7, 7), convolution(6, 4, 3, stride=(2, 2), dilate=(2, 2))),
    "grouped": chain((1, 6, 5, 5), convolution(6, 4, 3, groups=2)),
    "depthwise": chain((1, 6, 5, 5), convolution(6, 6, 3, groups=6)),
    "two outputs of each channel": chain((1, 6, 5, 5), convolution(6, 12, 3, groups=6)),
    "FullyConnected": chain((1, 6), (FullyConnected(num_hidden=4, no_bias=True), [weights(4, 6)])),
    "FullyConnected of images": chain((1, 6, 2, 2), (FullyConnected(num_hidden=4, no_bias=True), [weights(4, 24)])),
    "FullyConnected of rows": chain(
        (1, 3, 6), (FullyConnected(num_hidden=4, no_bias=True, flatten=False), [weights(4, 6)])
    ),
    "Deconvolution": chain(
        (1, 6, 4, 4), (Deconvolution(kernel=(3, 3), num_filter=4, stride=(2, 2)), [weights(6, 4, 3, 3)])
    ),
    "grouped Deconvolution": chain(
        (1, 6, 4, 4), (Deconvolution(kernel=(3, 3), num_filter=4, stride=(2, 2), num_group=2), [weights(6, 2, 3, 3)])
    ),
}


def network() -> Graph:
    """Pads, a depthwise layer, a residual sum, one tensor read by two layers, biases, a fully connected end."""
    builder = GraphBuilder()
    counter = iter(range(100))

    def layer(source, channels: int, outputs: int, kernel: int = 1, groups: int = 1, bias: bool = True):  # type: ignore[no-untyped-def]
        number = next(counter)
        operator, (taps,) = convolution(channels, outputs, kernel, groups)
        if kernel > 1:
            source = builder.apply(Pad(pad_width=(0, 0, 0, 0, 1, 1, 1, 1)), [source], f"pad{number}")
        made = builder.apply(operator, [source, builder.parameter(f"w{number}", taps)], f"layer{number}")
        if not bias:
            return made
        offset = builder.parameter(f"b{number}", RNG.normal(0, 0.3, (1, outputs, 1, 1)).astype(np.float32))
        return builder.apply(BroadcastAdd(), [made, offset], f"biased{number}")

    def relu(source):  # type: ignore[no-untyped-def]
        return builder.apply(Relu(), [source], f"relu{next(counter)}")

    x = builder.input("x", TensorType((1, 3, 6, 6)))
    first = relu(layer(x, 3, 4, 3))
    inner = layer(relu(layer(first, 4, 4, 3, groups=4)), 4, 4)
    total = builder.apply(ElemwiseAdd(), [first, inner], "total")
    left, right = layer(total, 4, 4, bias=False), layer(total, 4, 4)
    both = builder.apply(ElemwiseAdd(), [relu(left), right], "both")
    flat = builder.apply(Reshape(shape=(0, -1)), [both], "flat")
    end = builder.apply(
        FullyConnected(num_hidden=5, no_bias=True), [flat, builder.parameter("wf", weights(5, 144))], "end"
    )
    return builder.graph([end])


NETWORK = network()
RUNS = {name: (graph, data_for(graph)) for name, graph in {**SINGLE, "network": NETWORK}.items()}
QUANTIZERS = [("symmetric", "symmetric"), ("affine", "symmetric"), ("affine", "affine")]

"""What data of more than eight bits costs: layers on 8, 12 and 16 bits, their times next to each other.

    python benchmarks/activation_bits.py
    python benchmarks/activation_bits.py --cpu x86-64-v3 --layers "depthwise 3 x 3,fully connected"

Each layer is compiled for one thread, with weights of 8 bits and results of 8 bits. A time is the least of its calls in
several rounds, in which the widths take turns; so others that use the machine show little.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from command_line import Parser, listed, one_of, whole
from in_turns import machine, row

from mrt.backend.machine import Machine
from mrt.backend.profile import profile
from mrt.symbol import Graph, GraphBuilder, Interval, Symbol, TensorType, find_operator

LAYERS: Mapping[str, tuple[tuple[int, ...], int, int, int, int]] = {
    "convolution 3 x 3": ((1, 128, 28, 28), 128, 3, 1, 1),
    "strided 3 x 3 of 3 channels": ((1, 3, 224, 224), 32, 3, 2, 1),
    "convolution 1 x 1": ((1, 256, 14, 14), 256, 1, 1, 1),
    "convolution 1 x 1 of 32 channels": ((1, 32, 48, 48), 64, 1, 1, 1),
    "depthwise 3 x 3": ((1, 64, 56, 56), 64, 3, 1, 64),
    "depthwise 5 x 5": ((1, 240, 14, 14), 240, 5, 1, 240),
    "fully connected": ((1, 1024, 1, 1), 1000, 1, 1, 1),
}
"""By name: the shape of the data, output channels, length of the kernel, stride, groups."""
WIDTHS: Mapping[str, tuple[int, int, str]] = {
    "8 bits": (0, 2**8 - 1, "uint8"),
    "12 bits": (0, 2**12 - 1, "int16"),
    "16 bits, signed": (1 - 2**15, 2**15 - 1, "int16"),
    "16 bits, unsigned": (0, 2**16 - 1, "int32"),
}
"""By name: the range of the data, and the dtype that holds it."""


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--layers", type=listed(one_of(list(LAYERS))), default=list(LAYERS), help="separated by commas")
    parser.add_argument(
        "--cpu", default="native", help="which LLVM makes code for, of the kind of this machine: native"
    )
    parser.add_argument("--rounds", type=whole(1), default=3, help="in which each width is measured: 3")
    parser.add_argument("--runs", type=whole(1), default=100, help="of each round: 100")
    arguments = parser.parse_args()
    target = Machine.of({"kind": "llvm", "mcpu": arguments.cpu, "threads": 1})
    print(f"{machine()}\n\n{row(['layer, µs', *WIDTHS])}\n{row(['---'] * (1 + len(WIDTHS)))}", flush=True)
    for name in arguments.layers:
        least = dict.fromkeys(WIDTHS, float("inf"))
        for _ in range(arguments.rounds):
            for width in WIDTHS:
                least[width] = min(least[width], seconds(name, width, target, arguments.runs))
        base = least["8 bits"]
        print(row([name, *(f"{time * 1e6:.1f} ({time / base:.2f})" for time in least.values())]), flush=True)


def seconds(layer: str, width: str, target: Machine, runs: int) -> float:
    """The least time of the function that multiplies."""
    graph, known = network(layer, width)
    return max((call.products, call.seconds) for call in profile(graph, known, target, runs).calls)[1]


def network(layer: str, width: str) -> tuple[Graph, dict[str, Interval]]:
    """The layer behind what gives it its data, and the bounds of that."""
    (shape, filters, length, stride, groups), (lo, hi, dtype) = LAYERS[layer], WIDTHS[width]
    random, builder = np.random.default_rng(0), GraphBuilder()
    given = builder.input("x", TensorType(shape, "int32"))
    once = builder.parameter("once", np.ones((1, shape[1], 1, 1), np.int8))
    data = clipped(builder, apply(builder, "broadcast_mul", [given, once]), lo, hi, dtype)
    if length > 1:
        data = apply(builder, "Pad", [data], pad_width=(0, 0, 0, 0, *[length // 2] * 4))
    weight = random.integers(-3, 3, (filters, shape[1] // groups, length, length), endpoint=True).astype(np.int8)
    attributes = {"kernel": (length, length), "num_filter": filters, "stride": (stride, stride), "no_bias": True}
    sums = apply(builder, "Convolution", [data, builder.parameter("weight", weight)], num_group=groups, **attributes)
    held = apply(builder, "clip", [sums], a_min=0.0, a_max=2.0**16 - 1)
    factor = builder.parameter("factor", random.integers(2**14, 2**15, (1, filters, 1, 1)).astype(np.int16))
    shift = builder.parameter("shift", np.full((1, filters, 1, 1), 24, np.int8))
    scaled = apply(builder, "right_shift", [apply(builder, "broadcast_mul", [held, factor]), shift])
    result = apply(builder, "relu", [clipped(builder, scaled, 0, 255, "uint8")])
    return builder.graph([result]), {"x": Interval.of(lo, hi, shape)}


def clipped(builder: GraphBuilder, data: Symbol, lo: int, hi: int, dtype: str) -> Symbol:
    """Held to a range, in a dtype."""
    held = apply(builder, "clip", [data], a_min=float(lo), a_max=float(hi))
    return held if held.dtype == dtype else apply(builder, "Cast", [held], dtype=dtype)


def apply(builder: GraphBuilder, name: str, inputs: list[Symbol], **attributes: Any) -> Symbol:
    return builder.apply(find_operator(name)(**attributes), inputs)


if __name__ == "__main__":
    main()

"""Where the time of a compiled network goes, function by function, and the share of the peak that each reaches.

    python benchmarks/kernel_shares.py
    python benchmarks/kernel_shares.py --models resnet50 --isa vnni

One thread, one sample. A function's time is the least of its calls' within runs of the network, so that it finds in the
caches what the functions before it left there. The peak is what the instruction itself does without loads or stores,
measured in the same process.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from command_line import Parser, listed, one_of, whole, work_folder
from in_turns import Store, machine, row
from latency import MODELS
from peers import ISA, isa_target

ACCUMULATORS, LANES, DOT_PRODUCTS = 12, 16, 64
"""Enough sums for two instructions at a time with four cycles each; products of one vpdpbusd of 512 bits."""
TILES, TILE_PRODUCTS = 4, 16 * 16 * 64
STEPS = 20_000
"""Of the loop that measures a peak."""


@dataclass(frozen=True)
class Measured:
    """A function: what it computes, the shape that it gives, products of its calls, their seconds and number."""

    operators: str
    shape: tuple[int, ...]
    products: int
    seconds: float
    calls: int = 1


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--models", type=listed(one_of(MODELS)), default=["resnet50", "mobilenetv2"], help="by commas")
    parser.add_argument("--isa", type=one_of(list(ISA)), default="native", help="native, or vnni: without AMX")
    parser.add_argument("--runs", type=whole(1), default=20, help="of the network: 20")
    parser.add_argument("--work", type=Path, help="a folder for networks and quantized models; a temporary one")
    arguments = parser.parse_args()
    with work_folder(arguments.work) as work:
        report(arguments, Store(work))


def report(arguments: Namespace, store: Store) -> None:
    """Prints a table for each network."""
    import mrt

    target = isa_target(1, arguments.isa)
    name, peak = find_peak(target)
    print(f"{machine()}\n\nThe peak of {name}: {peak / 1e9:.0f} GMAC/s in one thread.\n")
    for model in arguments.models:
        network = store.get("network", name=model, spread=1.0)
        calls = together(measure(mrt.load(store.get("mrt-model", network=network, options={})), target, arguments.runs))
        total = sum(call.seconds for call in calls)
        products = sum(call.products for call in calls)
        print(f"{model}: {total * 1e3:.2f} ms, {products / 1e9:.2f} GMAC, {share(products, total, peak)} of the peak\n")
        print(row(["what", "gives", "calls", "µs", "of the time", "GMAC/s", "of the peak"]))
        print(row(["---"] * 7))
        for call in sorted(calls, key=lambda call: -call.seconds):
            rate = f"{call.products / call.seconds / 1e9:.0f}" if call.products else "-"
            facts = [f"{call.seconds * 1e6:.1f}", f"{call.seconds / total:.1%}", rate]
            reached = share(call.products, call.seconds, peak) if call.products else "-"
            print(row([call.operators, "x".join(map(str, call.shape)), str(call.calls), *facts, reached]), flush=True)
        print()


def share(products: int, seconds: float, peak: float) -> str:
    return f"{products / seconds / peak:.0%}"


def together(calls: Sequence[Measured]) -> list[Measured]:
    """Calls of the same operators and shapes as one, their times and products summed up."""
    found: dict[tuple[str, tuple[int, ...], int], list[Measured]] = {}
    for call in calls:
        found.setdefault((call.operators, call.shape, call.products), []).append(call)
    return [
        Measured(*key[:2], key[2] * len(group), sum(call.seconds for call in group), len(group))
        for key, group in found.items()
    ]


def measure(model: Any, target: dict[str, Any], runs: int) -> list[Measured]:
    """Every function of the integer network that is called, in order."""
    import numpy as np
    import tvm

    from mrt.backend.emit import plan_calls
    from mrt.backend.known_bounds import bounds_of_inputs
    from mrt.backend.machine import Machine
    from mrt.runtime import virtual_machine

    _, calls, _ = plan_calls(
        model.graph, Machine.of(target), lambda key, name, make: name, {}, bounds_of_inputs(model.inputs)
    )
    functions = virtual_machine(compile_integers(model, target))
    random = np.random.default_rng(0)
    fed = [
        tvm.runtime.tensor(random.integers(entry.lo, entry.hi, entry.shape, endpoint=True).astype(entry.dtype))
        for entry in model.inputs
    ]
    times: list[list[float]] = [[] for _ in calls]
    began, place = 0.0, 0

    def observe(function: Any, name: str, before: bool, *rest: Any) -> None:
        nonlocal began, place
        if name.startswith("vm."):
            return
        if before:
            began = time.perf_counter()
        else:
            times[place].append(time.perf_counter() - began)
            place += 1

    run = functions["main"]
    run(*fed)
    functions.set_instrument(observe)
    for _ in range(runs):
        place = 0
        run(*fed)
    found = []
    for call, seconds in zip(calls, times, strict=True):
        symbols = call.lowered.region.symbols if call.lowered else ()
        products = sum(multiplications(symbol) for symbol in symbols)
        found.append(Measured(described(symbols), call.storages[0].type.shape, products, min(seconds)))
    return found


def described(symbols: Sequence[Any]) -> str:
    """Such as `Convolution 64x256x1x1 and 12 more`: the first operator, the shape of its weight, and what is fused."""
    if not symbols:
        return "copy"
    weight = f" {'x'.join(map(str, symbols[0].inputs[1].shape))}" if multiplications(symbols[0]) else ""
    more = f" and {len(symbols) - 1} more" if len(symbols) > 1 else ""
    return f"{symbols[0].op}{weight}{more}"


def compile_integers(model: Any, target: dict[str, Any]) -> Any:
    """An executable whose function `main` is the integer network."""
    from mrt.backend.build import compile_executable
    from mrt.backend.emit import Emitter
    from mrt.backend.known_bounds import bounds_of_inputs
    from mrt.backend.machine import Machine

    emitter = Emitter(Machine.of(target))
    emitter.add(model.graph, "main", bounds_of_inputs(model.inputs))
    return compile_executable(emitter.module(), Machine.of(target))


def multiplications(symbol: Any) -> int:
    """Of a convolution or a fully connected layer; 0 for anything else."""
    if symbol.op not in ("Convolution", "FullyConnected", "sliced_convolution"):
        return 0
    weight = symbol.inputs[1].shape
    return int(symbol.type.size) * int(symbol.inputs[1].type.size) // int(weight[0])


def find_peak(target: dict[str, Any]) -> tuple[str, float]:
    """The instruction that multiplies bytes on the machine, and how many products it forms in a second.

    SystemExit where that is none of 512 bits.
    """
    from mrt.backend.machine import Machine

    found = Machine.of(target)
    if "vpdpbusd.512" not in found.multiplies_bytes:
        raise SystemExit("this machine has no vpdpbusd of 512 bits, whose peak the shares are of")
    if found.has_tiles:
        return "tdpbusd", TILES * TILE_PRODUCTS * STEPS / least_time(tile_loop(), found)
    return "vpdpbusd", ACCUMULATORS * DOT_PRODUCTS * STEPS / least_time(vector_loop(found.multiplies_bytes), found)


def least_time(function: Any, found: Any) -> float:
    """Seconds of a call of a PrimFunc that takes one int32 buffer."""
    import numpy as np
    import tvm

    module = tvm.compile(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}), found.target)
    memory = tvm.runtime.tensor(np.zeros(ACCUMULATORS * LANES, np.int32))
    run: Callable[[Any], Any] = module["main"]
    times = []
    for _ in range(30):
        began = time.perf_counter()
        run(memory)
        times.append(time.perf_counter() - began)
    return min(times)


def vector_loop(instruction: str) -> Any:
    """Sums that are independent of each other, each in a register."""
    from tvm import tirx

    memory = tirx.decl_buffer((ACCUMULATORS * LANES,), "int32", "memory")
    body = []
    for i in range(ACCUMULATORS):
        place = [tirx.Ramp(tirx.const(i * LANES, "int32"), 1, LANES)]
        factor = tirx.reinterpret("int8x64", tirx.Broadcast(tirx.const(0x01010101, "int32"), LANES))
        held = tirx.BufferLoad(memory, place)
        body.append(
            tirx.BufferStore(memory, tirx.call_llvm_pure_intrin("int32x16", instruction, held, factor, factor), place)
        )
    return _repeated(memory, body)


def tile_loop() -> Any:
    """Sums in four tiles; what is multiplied is 0, which takes as long."""
    from tvm import tirx
    from tvm.tirx.op import address_of

    memory = tirx.decl_buffer((ACCUMULATORS * LANES,), "int32", "memory")
    rows, widths = [0] * 16, [0] * 32
    for tile in range(8):
        rows[tile], widths[2 * tile] = 16, 64
    palette = bytes([1] + [0] * 15 + widths + rows)
    stores = [
        tirx.BufferStore(memory, tirx.const(int.from_bytes(palette[4 * i : 4 * i + 4], "little"), "int32"), [i])
        for i in range(16)
    ]

    def call(name: str, *arguments: Any) -> Any:
        return tirx.Evaluate(tirx.call_llvm_intrin("int32", f"llvm.x86.{name}", *arguments))

    products = [
        call("tdpbusd", *(tirx.const(tile, "int8") for tile in (i, 4 + i // 2, 6 + i % 2))) for i in range(TILES)
    ]
    begin = call("ldtilecfg", address_of(tirx.BufferLoad(memory, [0])))
    return _repeated(memory, products, [*stores, begin], [call("tilerelease")])


def _repeated(memory: Any, body: list[Any], before: Sequence[Any] = (), after: Sequence[Any] = ()) -> Any:
    """A PrimFunc that runs `body` STEPS times."""
    from tvm import tirx

    step = tirx.Var("step", "int32")
    zero, times = tirx.const(0, "int32"), tirx.const(STEPS, "int32")
    loop = tirx.For(step, zero, times, tirx.ForKind.SERIAL, tirx.SeqStmt(body))
    return tirx.PrimFunc([memory], tirx.SeqStmt([*before, loop, *after]) if before else loop).with_attr(
        "tirx.noalias", True
    )


if __name__ == "__main__":
    main()

"""Where the time of a compiled network goes, function by function, and the share of the peak that each reaches.

    python benchmarks/kernel_shares.py
    python benchmarks/kernel_shares.py --models resnet50 --isa vnni
    python benchmarks/kernel_shares.py --models resnet50 --float

One thread, one sample. A function's time is the least of its calls' within runs of the network, so that it finds in the
caches what the functions before it left there. The peak is what an instruction does in a loop without loads or stores:
the one that multiplies bytes, or with --float the multiply-add of float32.

A processor lowers its clock for milliseconds after work that keeps its units and caches busy, and raises it again in
such a loop. Therefore both are measured in turns: behind every run of the network comes one in which each function that
multiplies is followed by the loop, for as long as a large function takes. The share is of the least time of as many
loops as the function had calls. What the loop does by itself, mostly at a higher clock, is printed beside that.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from command_line import Parser, add_isa, listed, one_of, whole, work_folder
from in_turns import Store, machine, row
from latency import MODELS
from makers import NETWORK, isa_target

ACCUMULATORS, LANES, DOT_PRODUCTS = 12, 16, 64
"""Enough sums for two instructions at a time with four cycles each; products of one vpdpbusd of 512 bits."""
TILES, TILE_PRODUCTS = 4, 16 * 16 * 64
VECTOR_STEPS, TILE_STEPS = 200_000, 20_000
"""Of the loops that measure a peak: a third of a millisecond."""
ALONE = 30
"""Calls of the loop by itself, after which the clock has long settled."""


@dataclass(frozen=True)
class Measured:
    """A function: what it computes, the shape that it gives, products of its calls, their seconds and number.

    least: the seconds that the products take at the peak.
    """

    operators: str
    shape: tuple[int, ...]
    products: int
    seconds: float
    least: float
    calls: int = 1


@dataclass(frozen=True)
class Peak:
    """A loop of an instruction: its name, the products that a call forms, and a call, which gives its seconds."""

    instruction: str
    products: int
    call: Callable[[], float]

    def alone(self) -> float:
        """Products in a second of the fastest of calls that follow each other."""
        return self.products / min(self.call() for _ in range(ALONE))


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--models", type=listed(one_of(MODELS)), default=["resnet50", "mobilenetv2"], help="by commas")
    add_isa(parser)
    parser.add_argument("--float", action="store_true", help="the float network, and not the integer one")
    parser.add_argument("--runs", type=whole(1), default=20, help="of the network: 20")
    parser.add_argument("--work", type=Path, help="a folder for networks and quantized models; a temporary one")
    arguments = parser.parse_args()
    with work_folder(arguments.work) as work:
        report(arguments, Store(work))


def report(arguments: Namespace, store: Store) -> None:
    """Prints a table for each network."""
    target = isa_target(1, arguments.isa)
    peak = find_peak(target, arguments.float)
    print(f"{machine()}\n")
    for model in arguments.models:
        network = store.get("network", name=model, spread=1.0)
        subject = float_network(network) if arguments.float else integer_network(store, network)
        calls = together(measure(*subject, target, arguments.runs, peak))
        total, products, least = (
            sum(getattr(call, name) for call in calls) for name in ("seconds", "products", "least")
        )
        alone = peak.alone()
        print(
            f"{model}: {total * 1e3:.2f} ms, {products / 1e9:.2f} GMAC in one thread, {least / total:.0%} of the peak. "
            f"That of {peak.instruction} is {products / least / 1e9:.0f} GMAC/s in turns with the functions. "
            f"By itself it is {alone / 1e9:.0f} GMAC/s, of which these are {products / total / alone:.0%}.\n"
        )
        print(row(["what", "gives", "calls", "µs", "of the time", "GMAC/s", "of the peak"]))
        print(row(["---"] * 7))
        for call in sorted(calls, key=lambda call: -call.seconds):
            rate, reached = "-", "-"
            if call.products:
                rate, reached = f"{call.products / call.seconds / 1e9:.0f}", f"{call.least / call.seconds:.0%}"
            facts = [f"{call.seconds * 1e6:.1f}", f"{call.seconds / total:.1%}", rate, reached]
            print(row([call.operators, "x".join(map(str, call.shape)), str(call.calls), *facts]), flush=True)
        print()


def together(calls: Sequence[Measured]) -> list[Measured]:
    """Calls of the same operators and shapes as one, their times and products summed up."""
    found: dict[tuple[str, tuple[int, ...], int], list[Measured]] = {}
    for call in calls:
        found.setdefault((call.operators, call.shape, call.products), []).append(call)
    return [
        Measured(
            *key[:2],
            key[2] * len(group),
            sum(call.seconds for call in group),
            sum(call.least for call in group),
            len(group),
        )
        for key, group in found.items()
    ]


def float_network(network: Path) -> tuple[Any, dict[str, Any]]:
    """The graph of a network as calibration runs it, and nothing that is known of its tensors."""
    import mrt

    return mrt.load_model(network / NETWORK, 1), {}


def integer_network(store: Store, network: Path) -> tuple[Any, dict[str, Any]]:
    """The integer graph of a network, and what its inputs are held to."""
    import mrt
    from mrt.backend.rewrites.known_bounds import bounds_of_inputs

    model = mrt.load(store.get("mrt-model", network=network, options={}))
    return model.graph, bounds_of_inputs(model.inputs)


def measure(graph: Any, known: Any, target: dict[str, Any], runs: int, peak: Peak) -> list[Measured]:
    """Every function that is called where a graph is computed, in order, in turns with the loop of the peak.

    known: bounds of the graph's inputs.
    """
    import numpy as np
    import tvm

    from mrt.backend.lowering.plan_calls import plan_calls
    from mrt.backend.lowering.region import Copy
    from mrt.backend.machine import Machine
    from mrt.backend.schedule.tilings import schedule_by_rule
    from mrt.symbol import Symbol

    made: dict[Any, tuple[str, Any]] = {}

    def add_function(key: Any, name: str, make: Callable[[Any], Any]) -> str:
        if key not in made:
            made[key] = f"{name}_{len(made)}", make(schedule_by_rule)
        return made[key][0]

    found = Machine.of(target)
    plan = plan_calls(graph, found, add_function, {}, known)
    calls = plan.calls
    functions = compile_functions(dict(made.values()), found)
    random = np.random.default_rng(0)
    memory: dict[Any, Any] = {symbol: tvm.runtime.tensor(_fed(symbol, known, random)) for symbol in plan.graph.inputs}
    steps = []
    for call in calls:
        if call.written is not None:
            memory.setdefault(call.results[-1], memory.get(call.written))
        for result, storage in zip(call.results, call.storages, strict=True):
            if memory.get(result) is None:
                memory[result] = tvm.runtime.tensor(np.zeros(storage.shape, storage.dtype))
        given = [memory[each] if isinstance(each, (Symbol, Copy)) else each.value for each in call.arguments]
        steps.append((functions[call.function], [*given, *(memory[result] for result in call.results)]))
    symbols = [call.lowered.region.symbols if call.lowered else () for call in calls]
    products = [sum(multiplications(symbol) for symbol in each) for each in symbols]
    times, loops = ([float("inf")] * len(calls) for _ in range(2))
    for run in range(2 * (runs + 1)):
        for place, (function, given) in enumerate(steps):
            began = time.perf_counter()
            function(*given)
            if run % 2 == 0:
                times[place] = min(times[place], time.perf_counter() - began)
            elif products[place]:
                loops[place] = min(loops[place], peak.call())
    return [
        Measured(
            described(symbols[place]),
            call.storages[0].type.shape,
            products[place],
            times[place],
            products[place] / peak.products * loops[place] if products[place] else 0.0,
        )
        for place, call in enumerate(calls)
    ]


def _fed(symbol: Any, known: Any, random: Any) -> Any:
    """Numbers for an input of a graph: integers within its bounds, or floats."""
    if symbol.name not in known:
        return random.standard_normal(symbol.shape).astype(symbol.dtype)
    bounds = known[symbol.name]
    return random.integers(bounds.lo, bounds.hi, symbol.shape, endpoint=True).astype(symbol.dtype)


def described(symbols: Sequence[Any]) -> str:
    """Such as `Convolution 64x256x1x1 and 12 more`: the first operator, the shape of its weight, and what is fused."""
    if not symbols:
        return "copy"
    weight = f" {'x'.join(map(str, symbols[0].inputs[1].shape))}" if multiplications(symbols[0]) else ""
    more = f" and {len(symbols) - 1} more" if len(symbols) > 1 else ""
    return f"{symbols[0].op}{weight}{more}"


def compile_functions(functions: dict[str, Any], found: Any) -> Any:
    """The compiled PrimFuncs by name; the process has the registers that they use."""
    import numpy as np
    import tvm

    from mrt.backend.build import SETTINGS
    from mrt.backend.kernels.x86.amx.instructions import needs_tiles, tile_request
    from mrt.backend.link.kernel_pipeline import KERNELS

    every = dict(functions)
    asks = any(needs_tiles(function) for function in functions.values())
    if asks:
        every["request"] = tile_request()
    module = tvm.IRModule({name: function.with_attr("global_symbol", name) for name, function in every.items()})
    with tvm.transform.PassContext(config=SETTINGS):
        compiled = tvm.compile(module, found.target, tir_pipeline=KERNELS)
    if asks:
        answer = tvm.runtime.tensor(np.zeros(1, np.int32))
        compiled["request"](answer)
        if answer.numpy().any():
            raise SystemExit("this process does not get the tile registers that the code uses")
    return {name: compiled[name] for name in functions}


def multiplications(symbol: Any) -> int:
    """Of a convolution, a fully connected layer or a product of matrices; 0 for anything else."""
    if symbol.op in ("batch_dot", "dot"):
        *_, rows, terms = symbol.inputs[0].shape
        return int(symbol.type.size) * int(rows if symbol.operator.transpose_a else terms)
    if symbol.op not in ("Convolution", "FullyConnected", "sliced_convolution"):
        return 0
    weight = symbol.inputs[1].shape
    return int(symbol.type.size) * int(symbol.inputs[1].type.size) // int(weight[0])


def find_peak(target: dict[str, Any], is_float: bool = False) -> Peak:
    """The loop of the instruction that multiplies bytes on the machine, or floats.

    SystemExit where that is none of 512 bits.
    """
    from mrt.backend.kernels.dot_instructions import dots_of
    from mrt.backend.kernels.x86.vnni.dots import VPDPBUSD_512
    from mrt.backend.machine import Machine

    found = Machine.of(target)
    if is_float:
        if found.vector_bits != 512:
            raise SystemExit(f"this machine has vectors of {found.vector_bits} bits; the peak is that of 512")
        call = timed(vector_loop("llvm.fma.v16f32", "float32"), found)
        return Peak("vfmadd231ps", ACCUMULATORS * LANES * VECTOR_STEPS, call)
    if VPDPBUSD_512 not in dots_of(found):
        raise SystemExit("this machine has no vpdpbusd of 512 bits, whose peak the shares are of")
    if found.has_tiles:
        return Peak("tdpbusd", TILES * TILE_PRODUCTS * TILE_STEPS, timed(tile_loop(), found))
    call = timed(vector_loop(VPDPBUSD_512.llvm), found)
    return Peak("vpdpbusd", ACCUMULATORS * DOT_PRODUCTS * VECTOR_STEPS, call)


def timed(function: Any, found: Any) -> Callable[[], float]:
    """A call of a PrimFunc that takes one buffer of ACCUMULATORS x LANES elements, which gives its seconds."""
    import numpy as np
    import tvm

    module = tvm.compile(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}), found.target)
    memory = tvm.runtime.tensor(np.zeros(ACCUMULATORS * LANES, str(function.params[0].dtype)))
    run: Callable[[Any], Any] = module["main"]

    def call() -> float:
        began = time.perf_counter()
        run(memory)
        return time.perf_counter() - began

    return call


def vector_loop(instruction: str, dtype: str = "int32") -> Any:
    """Sums of a dtype that are independent of each other, each in a register.

    A product of floats has the sum as a factor: one of constants would be formed while compiling.
    """
    from tvm import tirx

    memory = tirx.decl_buffer((ACCUMULATORS * LANES,), dtype, "memory")
    body = []
    for i in range(ACCUMULATORS):
        place = [tirx.Ramp(tirx.const(i * LANES, "int32"), 1, LANES)]
        if dtype == "int32":
            factor = tirx.reinterpret("int8x64", tirx.Broadcast(tirx.const(0x01010101, "int32"), LANES))
        else:
            factor = tirx.Broadcast(tirx.const(0.5, dtype), LANES)
        held = tirx.BufferLoad(memory, place)
        body.append(
            tirx.BufferStore(
                memory, tirx.call_llvm_pure_intrin(f"{dtype}x16", instruction, held, factor, factor), place
            )
        )
    return _repeated(memory, body, VECTOR_STEPS)


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
    return _repeated(memory, products, TILE_STEPS, [*stores, begin], [call("tilerelease")])


def _repeated(memory: Any, body: list[Any], steps: int, before: Sequence[Any] = (), after: Sequence[Any] = ()) -> Any:
    """A PrimFunc that runs `body` so many times."""
    from tvm import tirx

    step = tirx.Var("step", "int32")
    zero, times = tirx.const(0, "int32"), tirx.const(steps, "int32")
    loop = tirx.For(step, zero, times, tirx.ForKind.SERIAL, tirx.SeqStmt(body))
    return tirx.PrimFunc([memory], tirx.SeqStmt([*before, loop, *after]) if before else loop).with_attr(
        "tirx.noalias", True
    )


if __name__ == "__main__":
    main()

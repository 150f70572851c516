"""Where the time of a compiled network goes, function by function, and the share of the peak that each reaches.

    python benchmarks/kernel_shares.py
    python benchmarks/kernel_shares.py --models resnet50 --isa vnni
    python benchmarks/kernel_shares.py --models resnet50 --float

One thread, one sample, networks quantized as in `latency.py`. A function's time is the least of its calls' within runs
of the network, so that it finds in the caches what the functions before it left there. The peak is what an instruction
does in a loop without loads or stores: the one that multiplies bytes exactly, whatever they are (with its addition,
where it does not add), or with --float the multiply-add of float32.

A processor lowers its clock for milliseconds after work that keeps its units and caches busy, and raises it again in
such a loop. Therefore both are measured in turns: behind every run of the network comes one in which each function that
multiplies is followed by the loop, for as long as a large function takes. The share is of the least time of as many
loops as the function had calls. What the loop does by itself, mostly at a higher clock, is printed beside that.

Products are those of the operators. Winograd's algorithm forms a quarter of them, with AVX2 one product of sums may
stand for two, and weights of 7 bits are multiplied faster where nothing adds up four products, so that such functions
may reach more than the peak.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from command_line import Parser, add_isa, listed, whole, work_folder
from in_turns import Store, machine, row
from latency import a_model, network_of
from makers import NETWORK, isa_target


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


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--models", type=listed(a_model), default=["resnet50", "mobilenetv2"], help="by commas")
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
        network = network_of(store, model)
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

    model = mrt.load(store.get("mrt-model", network=network, options={"preset": "mrt"}))
    return model.graph, bounds_of_inputs(model.inputs)


def measure(graph: Any, known: Any, target: dict[str, Any], runs: int, peak: Any) -> list[Measured]:
    """Every function that is called where a graph is computed, in order, in turns with the loop of the peak.

    known: bounds of the graph's inputs.
    """
    from mrt.backend.machine import Machine
    from mrt.backend.profile import profile

    return [
        Measured(
            described(each.symbols), each.call.storages[0].type.shape, each.products, each.seconds, each.at_peak or 0.0
        )
        for each in profile(graph, known, Machine.of(target), runs, peak).calls
    ]


def find_peak(target: dict[str, Any], is_float: bool = False) -> Any:
    """The loop of the instruction that multiplies bytes on the machine, or floats; SystemExit where it has none."""
    from mrt.backend.machine import Machine
    from mrt.backend.peak import peak_of

    peak = peak_of(Machine.of(target), is_float)
    if peak is None:
        raise SystemExit(
            f"this machine has no instruction of {'multiply-adds' if is_float else 'dots'} that kernels use"
        )
    return peak


def described(symbols: Sequence[Any]) -> str:
    """Such as `Convolution 64x256x1x1 and 12 more`: the first operator, the shape of its weight, and what is fused."""
    if not symbols:
        return "copy"
    weight = f" {'x'.join(map(str, symbols[0].inputs[1].shape))}" if multiplications(symbols[0]) else ""
    more = f" and {len(symbols) - 1} more" if len(symbols) > 1 else ""
    return f"{symbols[0].op}{weight}{more}"


def multiplications(symbol: Any) -> int:
    """Of a convolution, a fully connected layer or a product of matrices; 0 for anything else."""
    if symbol.op in ("batch_dot", "dot"):
        *_, rows, terms = symbol.inputs[0].shape
        return int(symbol.type.size) * int(rows if symbol.operator.transpose_a else terms)
    if symbol.op not in ("Convolution", "FullyConnected", "sliced_convolution"):
        return 0
    weight = symbol.inputs[1].shape
    return int(symbol.type.size) * int(symbol.inputs[1].type.size) // int(weight[0])


if __name__ == "__main__":
    main()

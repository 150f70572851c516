"""How many instructions a product takes in the loops of layers, on 8, 12 and 16 bits, for CPUs that need not be here.

    python benchmarks/instruction_counts.py
    python benchmarks/instruction_counts.py --triple x86_64-linux-gnu --cpu x86-64-v3

Each layer of `activation_bits.py` is compiled for one thread. What is counted is the loop without loops in it that
forms most products, as LLVM writes it: its instructions, those that multiply, the products of these, and those that
only load. Epilogues are in it where sums are so short that no loop forms them, and what a processor does at the same
time is in no figure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from activation_bits import LAYERS, WIDTHS, network
from command_line import Parser, listed, one_of
from in_turns import row

from mrt.backend.link.kernel_compiler import SETTINGS
from mrt.backend.link.kernel_pipeline import KERNELS
from mrt.backend.lowering.plan_calls import plan_calls
from mrt.backend.machine import Machine
from mrt.backend.schedule.tilings import schedule_by_rule
from mrt.quantization.cost import multiplications

DOTS, WHOLE = frozenset({"sdot", "udot", "usdot"}), frozenset({"mla", "mul"})
PRODUCTS = {
    **dict.fromkeys(DOTS, 16),
    **dict.fromkeys(("smlal", "smlal2", "umlal", "umlal2", "smull", "smull2", "umull", "umull2", *WHOLE), 4),
}
"""What an instruction of aarch64 on vectors of 128 bits multiplies, where that gives sums of 32 bits."""
BYTES_OF_A_PRODUCT = {"vpdpbusd": 1, "vpmaddubsw": 1, "vpdpwssd": 2, "vpmaddwd": 2, "pmaddwd": 2, "vpmulld": 4}
"""Of x86: how many bytes of a vector are a factor."""
VECTOR_BYTES = {"x": 16, "y": 32, "z": 64}
LOADS = re.compile(
    r"ld[1-4p]?r?|ldr\w*|ldp|ldur\w*|v?mov[a-z]*\d*|vpbroadcast\w|vpmov[sz]x\w+|pmov[sz]x\w+|vbroadcast\w+"
)


@dataclass(frozen=True)
class Loop:
    """Of a loop: its mnemonics, those that load, and how many products its vectors form."""

    mnemonics: Sequence[str]
    loads: int
    multiplying: int
    products: int

    @classmethod
    def of(cls, lines: Sequence[str]) -> Loop:
        """lines: of an assembly text."""
        operations = [line.split(None, 1) for line in lines]
        mnemonics = [each[0] for each in operations]
        formed = [products_of(each[0], each[1] if len(each) > 1 else "") for each in operations]
        if not DOTS.isdisjoint(mnemonics):
            # An epilogue in the same loop scales sums by these.
            formed = [0 if name in WHOLE else count for name, count in zip(mnemonics, formed, strict=True)]
        loads = sum(bool(LOADS.fullmatch(each[0])) and is_load(each[1]) for each in operations if len(each) > 1)
        return cls(mnemonics, loads, sum(count > 0 for count in formed), sum(formed))


def products_of(mnemonic: str, operands: str) -> int:
    """How many products an instruction forms; 0 where it does not multiply vectors."""
    if mnemonic in BYTES_OF_A_PRODUCT:
        register = re.search(r"%([xyz])mm", operands)
        return VECTOR_BYTES[register.group(1)] // BYTES_OF_A_PRODUCT[mnemonic] if register else 0
    return PRODUCTS.get(mnemonic, 0) if re.match(r"v\d+\.(4s|2d)", operands) else 0


def is_load(operands: str) -> bool:
    """Whether the operands of a move are memory and a register that it is moved to."""
    *_, last = re.split(r",\s*(?![^(\[]*[)\]])", operands)
    return "[" in operands or ("(" in operands and "(" not in last)


def loops(assembly: str) -> Iterator[Loop]:
    """The loops in an assembly text that have none within."""
    lines: list[str] = []
    begins: dict[str, int] = {}
    closed = 0
    for line in assembly.splitlines():
        text = re.split(r"\s(?:#|//)", line)[0].strip()
        if label := re.fullmatch(r"(\.L\w+):", text):
            begins[label.group(1)] = len(lines)
        elif text and not text.startswith(".") and not text.endswith(":"):
            lines.append(text)
            target = begins.get(text.split()[-1])
            is_jump = re.match(r"(j\w+|b(\.\w+)?|cbn?z|tbn?z)\s", text)
            if is_jump and target is not None and target >= closed:
                yield Loop.of(lines[target:])
                closed = len(lines)


def assembly_of(layer: str, width: str, machine: Machine) -> str:
    """The machine code of the function that multiplies."""
    graph, known = network(layer, width)
    made: dict[Any, Any] = {}

    def add(key: Any, name: str, make: Any) -> str:
        made[key] = make
        return str(len(made) - 1)

    plan = plan_calls(graph, machine, add, {}, known)
    last = max(
        (call for call in plan.calls if call.lowered),
        key=lambda call: sum(multiplications(symbol) or 0 for symbol in call.lowered.region.symbols),
    )
    function = list(made.values())[int(last.function)](schedule_by_rule).with_attr("global_symbol", "kernel")
    with tvm.transform.PassContext(config=SETTINGS):
        return str(tvm.tirx.build(tvm.IRModule({"kernel": function}), machine.target, KERNELS).inspect_source("asm"))


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--layers", type=listed(one_of(list(LAYERS))), default=list(LAYERS), help="separated by commas")
    parser.add_argument("--triple", default="aarch64-linux-gnu", help="LLVM's name of the kind of machine")
    parser.add_argument("--cpu", default="neoverse-n1", help="LLVM's name of the CPU: neoverse-n1")
    arguments = parser.parse_args()
    machine = Machine.of({"mtriple": arguments.triple, "mcpu": arguments.cpu, "threads": 1})
    print(f"{arguments.cpu} ({arguments.triple})\n")
    columns = ["layer", "data", "products", "instructions", "for 16 products", "that multiply", "that load"]
    print(row(columns))
    print(row(["---"] * len(columns)))
    for layer in arguments.layers:
        for width in WIDTHS:
            loop = max(loops(assembly_of(layer, width, machine)), key=lambda each: each.products)
            count = len(loop.mnemonics)
            each = f"{16 * count / loop.products:.2f}" if loop.products else "-"
            figures = [loop.products, count, each, loop.multiplying, loop.loads]
            print(row([layer, width, *map(str, figures)]), flush=True)


if __name__ == "__main__":
    main()

"""Whether TVM gives the integers of an exported Relay text at every level of optimization.

    python benchmarks/relay_levels.py prepare out/kws_dscnn out/relay    # where mrt is installed
    python benchmarks/relay_levels.py check out/relay                    # where a TVM of 0.8 to 0.19 is, with NumPy

The first writes model.relay, model.params and integers.npz: integers of the inputs' ranges, drawn at random, at either
end, and at both ends at random, with what `Graph.evaluate` makes of them. The second builds the text at opt_level 0 to
4, prints for each how many of the outputs differ, and exits with 1 if any does. It runs under the Pythons of such TVMs,
from 3.7 on.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

LEVELS = (0, 1, 2, 3, 4)
RANDOM = 4
"""Samples of each kind that are drawn."""


def prepare(saved: Path, folder: Path) -> None:
    """Exports a saved model to the folder, with integers."""
    import mrt

    model = mrt.load(saved)
    folder.mkdir(parents=True, exist_ok=True)
    model.to_relay(folder / "model.relay")
    random = np.random.default_rng(0)
    kinds = (
        lambda entry: np.full(entry.shape, entry.lo),
        lambda entry: np.full(entry.shape, entry.hi),
        *[lambda entry: random.choice([entry.lo, entry.hi], entry.shape)] * RANDOM,
        *[lambda entry: random.integers(entry.lo, entry.hi, entry.shape, endpoint=True)] * RANDOM,
    )
    arrays = {}
    for sample, draw in enumerate(kinds):
        feeds = {entry.name: draw(entry).astype(entry.dtype) for entry in model.inputs}
        arrays.update({f"in_{sample}_{place}": array for place, array in enumerate(feeds.values())})
        outputs = model.graph.evaluate(feeds)
        arrays.update({f"out_{sample}_{place}": array for place, array in enumerate(outputs)})
    np.savez(folder / "integers.npz", **arrays)


def check(folder: Path, target: str = "llvm") -> dict[int, int]:
    """By level, how many elements of the outputs differ, over all samples."""
    from tvm import relay

    params = relay.load_param_dict((folder / "model.params").read_bytes())
    text = (folder / "model.relay").read_text(encoding="utf-8")
    with np.load(folder / "integers.npz") as arrays:
        integers = dict(arrays)
    return {level: differing(build(text, params, level, target), integers) for level in LEVELS}


def build(text: str, params: dict, level: int, target: str):  # type: ignore[no-untyped-def, type-arg]
    """An executor of the text at a level, and the names of the inputs in order."""
    import tvm
    from tvm import relay
    from tvm.contrib import graph_executor

    parse = getattr(relay, "fromtext", None) or tvm.parser.fromtext
    module = parse(text)
    names = [variable.name_hint for variable in module["main"].params if variable.name_hint not in params]
    with tvm.transform.PassContext(opt_level=level, config={"tir.disable_vectorize": target == "c"}):
        library = relay.build(module, target=target, params=dict(params))
    return graph_executor.GraphModule(library["default"](tvm.cpu())), names


def differing(built, integers: dict) -> int:  # type: ignore[no-untyped-def, type-arg]
    executor, names = built
    found = 0
    for sample in sorted({key.split("_")[1] for key in integers}):
        for place, name in enumerate(names):
            executor.set_input(name, integers[f"in_{sample}_{place}"])
        executor.run()
        for place in range(executor.get_num_outputs()):
            expected = integers[f"out_{sample}_{place}"]
            found += int(np.count_nonzero(executor.get_output(place).numpy() != expected))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    preparing = commands.add_parser("prepare")
    preparing.add_argument("saved", type=Path)
    preparing.add_argument("folder", type=Path)
    checking = commands.add_parser("check")
    checking.add_argument("folder", type=Path)
    checking.add_argument("--target", default="llvm")
    arguments = parser.parse_args()
    if arguments.command == "prepare":
        prepare(arguments.saved, arguments.folder)
        return 0
    counts = check(arguments.folder, arguments.target)
    for level, count in counts.items():
        print(f"opt_level {level}: {count} integers differ")
    return int(any(counts.values()))


if __name__ == "__main__":
    sys.exit(main())

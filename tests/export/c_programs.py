"""Compiles exported C by the system's compiler, runs it as a program, and compares it with what the graph means."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from mrt.export.c import CSource, to_c
from mrt.export.c_text import C_TYPES
from mrt.symbol import Array, Graph, Symbol
from mrt.symbol.quantized_tensor import TensorQuantization
from tests.emulation import Emulation

Feeds = Mapping[str, Array]
STRICT = ("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror")
SANITIZED = ("-O1", "-fsanitize=undefined,address", "-fno-sanitize-recover=all")


def compiler() -> str:
    """The C compiler of this machine: the variable CC, or cc."""
    found = shutil.which(os.environ.get("CC", "cc"))
    if found is None:
        pytest.skip("no C compiler: install one, or name it by the variable CC")
    return found


def compile_c(*arguments: str | Path, by: str = "") -> None:
    """Runs this machine's compiler, or another one, which must find nothing to warn of."""
    done = subprocess.run([by or compiler(), *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def compiles(code: str, folder: Path, *flags: str) -> bool:
    """Whether the compiler takes a piece of C with these flags."""
    file = folder / "probe.c"
    file.write_text(code + "\n")
    arguments = [compiler(), *flags, "-c", file, "-o", folder / "probe.o"]
    return subprocess.run(arguments, capture_output=True, check=False).returncode == 0


def in_c(graph: Graph, inputs: Sequence[TensorQuantization], name: str = "model", digest: str = "0" * 64) -> CSource:
    """The C of a graph, its outputs of scale 1."""
    outputs = [TensorQuantization(s.name, s.shape, s.dtype, 1.0, 0, 0, 0) for s in graph.outputs]
    return to_c(graph, inputs, outputs, digest, name)


def write(source: CSource, folder: Path) -> list[Path]:
    """Writes the files; gives those that are compiled."""
    for name, text in source.files.items():
        (folder / name).write_text(text, encoding="ascii")
    return [folder / name for name in source.files if name.endswith(".c")]


@dataclass(frozen=True)
class Programs:
    """One executable of several networks, each run on the bytes of its inputs and giving those of its outputs.

    emulator: what the command begins with, for an executable of other machines.
    """

    path: Path
    graphs: tuple[Graph, ...]
    emulator: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        graphs: Sequence[tuple[Graph, Sequence[TensorQuantization]]],
        folder: Path,
        *flags: str,
        machine: Emulation | None = None,
    ) -> Programs:
        """Compiles the graphs, whose inputs are as stated, and a program that reads and writes files.

        machine: which it is for, this one by default.
        """
        files = []
        for index, (graph, inputs) in enumerate(graphs):
            files += write(in_c(graph, inputs, f"net{index}"), folder)
        main = folder / "main.c"
        main.write_text(_main([graph for graph, _ in graphs]))
        by, emulator = ("", ()) if machine is None else (machine.compiler, machine.emulator)
        compile_c(*STRICT, *flags, *files, main, "-o", folder / "programs", by=by)
        return cls(folder / "programs", tuple(graph for graph, _ in graphs), emulator)

    def run(self, index: int, samples: Sequence[Feeds]) -> list[list[Array]]:
        """What network number `index` gives for each sample."""
        graph = self.graphs[index]
        fed = b"".join(
            np.ascontiguousarray(feeds[symbol.name], symbol.dtype).tobytes()
            for feeds in samples
            for symbol in graph.inputs
        )
        done = subprocess.run([*self.emulator, self.path, str(index)], input=fed, capture_output=True, check=False)
        assert done.returncode == 0, f"status {done.returncode}: {done.stderr.decode()}"
        content, results = memoryview(done.stdout), []
        for _ in samples:
            results.append([])
            for symbol in graph.outputs:
                size = np.dtype(symbol.dtype).itemsize * symbol.type.size
                results[-1].append(np.frombuffer(content[:size], symbol.dtype).reshape(symbol.shape))
                content = content[size:]
        assert not content
        return results

    def assert_same(self, index: int, samples: Sequence[Feeds]) -> None:
        """The program gives the graph's integers."""
        graph = self.graphs[index]
        for feeds, found in zip(samples, self.run(index, samples), strict=True):
            for symbol, a, b in zip(graph.outputs, found, graph.evaluate(feeds), strict=True):
                np.testing.assert_array_equal(a, b, err_msg=f"{symbol} {symbol.operator}")


def _main(graphs: Sequence[Graph]) -> str:
    """A program that runs the network whose number it is given on each sample that standard input holds."""
    lines = ["#include <stdio.h>", "#include <stdlib.h>", *(f'#include "net{i}.h"' for i in range(len(graphs)))]
    for index, graph in enumerate(graphs):
        inputs = {f"input{i}": symbol for i, symbol in enumerate(graph.inputs)}
        outputs = {f"output{i}": symbol for i, symbol in enumerate(graph.outputs)}
        arguments = ", ".join([f"&instance{index}", *inputs, *outputs])
        read = " && ".join(f"fread({name}, sizeof {name}, 1, stdin) == 1" for name in inputs)
        lines += [f"static net{index}_instance instance{index};", f"static int run{index}(void) {{"]
        lines += [_declared(name, symbol) for name, symbol in {**inputs, **outputs}.items()]
        lines += [f"  while ({read}) {{", f"    int status = net{index}_run({arguments});"]
        lines += ["    if (status) return status;"]
        lines += [f"    fwrite({name}, sizeof {name}, 1, stdout);" for name in outputs]
        lines += ["  }", "  return 0;", "}"]
    lines += ["int main(int count, char **words) {", "  switch (count == 2 ? atoi(words[1]) : -1) {"]
    lines += [f"    case {index}: return run{index}();" for index in range(len(graphs))]
    lines += ["    default: return 127;", "  }", "}"]
    return "\n".join(lines) + "\n"


def _declared(name: str, symbol: Symbol) -> str:
    return f"  static {C_TYPES[symbol.dtype]} {name}[{symbol.type.size}];"

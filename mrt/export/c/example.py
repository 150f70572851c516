"""A program that shows how the C of a network is used, and what builds it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mrt.export.c_text import C_TYPES
from mrt.symbol.quantized_tensor import TensorQuantization


def example(
    name: str, inputs: Sequence[TensorQuantization], outputs: Sequence[TensorQuantization], has_states: bool
) -> dict[str, str]:
    """`main.c` and `CMakeLists.txt`, by file name, for a folder beside `{name}.c`.

    The program reads samples from standard input, the inputs of each one after the other: floats, or integers of an
    input that is given as such. It writes a line of real values for each. inputs, outputs: those of the C function.
    """
    return {"main.c": "\n".join(_main(name, inputs, outputs, has_states)) + "\n", "CMakeLists.txt": _build(name)}


def _main(
    name: str, inputs: Sequence[TensorQuantization], outputs: Sequence[TensorQuantization], has_states: bool
) -> Iterator[str]:
    prefix = name.upper()
    yield "/* Reads samples from standard input, floats or what is given as integers, and writes a line for each. */"
    yield f"#define {prefix}_FLOATS /* without it {name}.h has no function of floats */"
    yield f'#include "{name}.h"'
    yield "#include <stdio.h>"
    yield ""
    yield f"static {name}_instance network; /* any number of these may be at work at once */"
    for i, entry in enumerate(inputs):
        if not entry.is_given:
            yield f"static float values{i}[{prefix}_INPUT{i}_SIZE];"
        yield f"static {C_TYPES[entry.dtype]} input{i}[{prefix}_INPUT{i}_SIZE];"
    for i, entry in enumerate(outputs):
        yield f"static {C_TYPES[entry.dtype]} output{i}[{prefix}_OUTPUT{i}_SIZE];"
        yield f"static float real{i}[{prefix}_OUTPUT{i}_SIZE];"
    yield ""
    yield "int main(void) {"
    read = [f"{'input' if entry.is_given else 'values'}{i}" for i, entry in enumerate(inputs)]
    steps = [f"{name}_quantize_input{i}(values{i}, input{i})" for i, entry in enumerate(inputs) if not entry.is_given]
    arguments = [*(f"input{i}" for i in range(len(inputs))), *(f"output{i}" for i in range(len(outputs)))]
    steps.append(f"{name}_run({', '.join(['&network', *arguments])})")
    if has_states:
        yield f"  {name}_reset(&network);"
    yield f"  while ({' && '.join(f'fread({each}, sizeof {each}, 1, stdin) == 1' for each in read)}) {{"
    yield f"    if ({' || '.join(f'{step} != 0' for step in steps)}) {{"
    yield '      fputs("a sample holds NaN, or an integer outside of its range\\n", stderr);'
    yield "      return 1;"
    yield "    }"
    for i in range(len(outputs)):
        yield f"    {name}_dequantize_output{i}(output{i}, real{i});"
        yield f'    for (int i = 0; i < {prefix}_OUTPUT{i}_SIZE; ++i) {{ printf("%.9g ", (double)real{i}[i]); }}'
    yield "    putchar('\\n');"
    yield "  }"
    yield "  return 0;"
    yield "}"


def _build(name: str) -> str:
    return f"""\
cmake_minimum_required(VERSION 3.10)
project({name}_example C)
set(CMAKE_C_STANDARD 99)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

add_library(mrt_{name} STATIC ../{name}.c)
target_include_directories(mrt_{name} PUBLIC ..)

add_executable({name}_example main.c)
target_link_libraries({name}_example PRIVATE mrt_{name})
"""

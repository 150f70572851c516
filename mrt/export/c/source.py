"""The two files of a program: a header that says what it takes and gives, and its C99 source."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mrt.backend.te.registry import has_compute
from mrt.errors import ConfigError
from mrt.export.c.printer import C_TYPES, number
from mrt.export.c.program import WORKSPACE, Parameter, Program, make_program
from mrt.export.description import StatedState, stated_states
from mrt.export.registry import check_covered
from mrt.messages import short
from mrt.symbol import Graph
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.quantized_tensor import TensorQuantization
from mrt.symbol.rounding import HALF_EVEN
from mrt.version import __version__

VALUES_PER_LINE = 24


@dataclass(frozen=True)
class CSource:
    """A network in C. files: text by file name, the header first.

    workspace_bytes: RAM between inputs and outputs, which the source reserves. parameter_bytes: ROM of the weights.
    """

    files: dict[str, str]
    workspace_bytes: int
    parameter_bytes: int


def to_c(
    graph: Graph,
    inputs: Sequence[TensorQuantization],
    outputs: Sequence[TensorQuantization],
    digest: str,
    name: str = "model",
) -> CSource:
    """C99 that gives for the same integers the same integers as the integer `graph`: `{name}.h` and `{name}.c`.

    It needs a C compiler with <stdint.h> and, where a tensor is bool, <stdbool.h>: no library, no runtime, no float.
    `{name}_run` takes a pointer to the elements of each input, then of each output, in order; they must not overlap.
    It gives 0, or the number of the first input, counted from 1, that holds an integer outside of its range: then
    the outputs are not written. Tensors in between are in one static workspace, so it is not reentrant.

    inputs, outputs: how the integers of the graph's inputs and outputs stand for real values, in their order; digest:
    what `{name}_digest` holds. Raises ConfigError where `name` is no identifier, UnsupportedOperatorError listing every
    operator that has no form in C, CompilationError naming the symbol where a kernel cannot be made.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise ConfigError(f"{short(name)} cannot begin names of C; a letter, then letters, digits and _ are needed")
    check_covered(graph, "C", lambda symbol: has_compute(type(symbol.operator)))
    program = make_program(graph)
    files = {
        f"{name}.h": _header(name, digest, inputs, outputs, program, stated_states(graph)),
        f"{name}.c": _source(name, digest, inputs, outputs, program),
    }
    return CSource(files, program.workspace_bytes, program.parameter_bytes)


def sizes_in(header: str) -> tuple[int, int]:
    """The bytes of the workspace and of the parameters, as a header states them."""
    found = dict(re.findall(r"^#define \w+_(WORKSPACE|PARAMETER)_BYTES (\d+)$", header, re.MULTILINE))
    return int(found["WORKSPACE"]), int(found["PARAMETER"])


def _header(
    name: str,
    digest: str,
    inputs: Sequence[TensorQuantization],
    outputs: Sequence[TensorQuantization],
    program: Program,
    states: Sequence[StatedState],
) -> str:
    prefix = name.upper()
    sides = [(f"input{i}", entry) for i, entry in enumerate(inputs)]
    sides += [(f"output{i}", entry) for i, entry in enumerate(outputs)]
    lines = [
        f"/* An integer network, written by MRT {__version__}.",
        " *",
        " * An integer q stands for the real number scale * (q - zero point).",
        *(f" * {line}" for place, entry in sides for line in ("", *_described(place, entry))),
        *(f" * {line}" for state in states for line in ("", *_kept(state))),
        " */",
        f"#ifndef {prefix}_H",
        f"#define {prefix}_H",
        "",
        *_includes([entry.dtype for _, entry in sides]),
        "",
        "/* Elements of each tensor. */",
        *(f"#define {prefix}_{place.upper()}_SIZE {_size(entry)}" for place, entry in sides),
        "",
        "/* RAM for the tensors in between, and ROM for the parameters, which the source reserves. */",
        f"#define {prefix}_WORKSPACE_BYTES {program.workspace_bytes}",
        f"#define {prefix}_PARAMETER_BYTES {program.parameter_bytes}",
        "",
        *_declarations(name, digest, _prototype(name, inputs, outputs)),
        "",
        "#endif",
    ]
    return _text(lines)


def _declarations(name: str, digest: str, prototype: str) -> list[str]:
    """What a program may use, for C and C++."""
    return [
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        "/* SHA-256 of the certificate of the model that this was made from. */",
        f"extern const char {name}_digest[{len(digest) + 1}];",
        "",
        "/* Computes the outputs from the inputs, which must not overlap them. Not reentrant.",
        " *",
        " * Gives 0, or k where input number k, counted from 1, holds an integer outside of its range: no output is",
        " * written then. */",
        f"{prototype};",
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
    ]


def _described(place: str, entry: TensorQuantization) -> Iterator[str]:
    """The comment on an input or output; its scale is given as a fraction too, for arithmetic without floats."""
    shape = ", ".join(map(str, entry.shape))
    yield f"{place}: {_comment(entry.name)}, {entry.dtype}[{shape}], row by row, {entry.lo} to {entry.hi}"
    yield f"    zero point {entry.zero_point}"
    if entry.rounding != HALF_EVEN:
        yield f"    real values are rounded {entry.rounding}"
    if entry.zero_point_first:
        yield "    real values are divided by the scale, the zero point is added, and then they are rounded"
    for at in np.ndindex(entry.scale.shape):
        scale = float(entry.scale[at])
        numerator, denominator = scale.as_integer_ratio()
        ratio = f"{numerator}" if denominator == 1 else f"{numerator} / 2^{denominator.bit_length() - 1}"
        index = f"[{', '.join(map(str, at))}]" if at else ""
        yield f"    scale{index} {scale!r} = {ratio}"


def _kept(state: StatedState) -> Iterator[str]:
    """The comment on a state."""
    yield f"input{state.input} is a state: give it output{state.output} of the call before"
    is_one = isinstance(state.initial, int)
    values = [state.initial] if is_one else np.ravel(state.initial).tolist()
    yield f"    in the first call {'each element is' if is_one else 'its elements are'} {', '.join(map(str, values))}"


def _source(
    name: str,
    digest: str,
    inputs: Sequence[TensorQuantization],
    outputs: Sequence[TensorQuantization],
    program: Program,
) -> str:
    kernel = f"{name.upper()}_KERNEL"
    lines = [
        f"/* An integer network, written by MRT {__version__}: see {name}.h. */",
        f'#include "{name}.h"',
        *_includes(_dtypes(program)),
        "",
        "/* What C leaves to the compiler, and the kernels rely on; one that has it otherwise refuses these types. */",
        f"typedef char {name}_needs_int_of_32_bits[sizeof(int) >= 4 ? 1 : -1];",
        f"typedef char {name}_needs_right_shifts_that_keep_the_sign[(-3 >> 1) == -2 ? 1 : -1];",
        f"typedef char {name}_needs_conversions_modulo_2_to_the_32[(int32_t)UINT32_C(0xFFFFFFFE) == -2 ? 1 : -1];",
        "",
        "/* Without this, GCC 12 at -O2 specializes kernels for their places in the workspace and then loses calls. */",
        "#if defined(__GNUC__) && __GNUC__ >= 8 && !defined(__clang__)",
        f"#define {kernel} static __attribute__((noipa))",
        "#else",
        f"#define {kernel} static",
        "#endif",
        "",
        f'const char {name}_digest[{len(digest) + 1}] = "{digest}";',
        "",
        *_workspace(program),
        *(line for parameter in program.parameters for line in (*_parameter(parameter), "")),
        *(line for each in program.kernels for line in (f"{kernel} {each.text}", "")),
        *_run(name, inputs, outputs, program),
    ]
    return _text(lines)


def _dtypes(program: Program) -> set[str]:
    """The dtypes that kernels and parameters name."""
    words = {word for kernel in program.kernels for word in re.findall(r"\w+", kernel.text)}
    return {dtype for dtype, kind in C_TYPES.items() if kind in words} | {
        p.value.dtype.name for p in program.parameters
    }


def _workspace(program: Program) -> list[str]:
    """The workspace: a union of one array for each dtype, so that memory is read as the type that was written."""
    arguments = [argument for call in program.calls for argument in call.arguments]
    used = [dtype for dtype in C_TYPES if any(f"{WORKSPACE}.of_{dtype} " in argument for argument in arguments)]
    if not used:
        return []
    size = program.workspace_bytes
    members = [f"  {C_TYPES[dtype]} of_{dtype}[{size // np.dtype(dtype).itemsize}];" for dtype in used]
    return ["static union {", *members, f"}} {WORKSPACE};", ""]


def _parameter(parameter: Parameter) -> Iterator[str]:
    kind, value = C_TYPES[parameter.value.dtype.name], parameter.value
    yield f"/* {', '.join(_comment(symbol.name) for symbol in parameter.symbols)} */"
    yield f"static const {kind} {parameter.name}[{value.size}] = {{"
    for start in range(0, value.size, VALUES_PER_LINE):
        row = value[start : start + VALUES_PER_LINE].astype(np.int64).tolist()
        yield f"  {', '.join(map(number, row))},"
    yield "};"


def _prototype(name: str, inputs: Sequence[TensorQuantization], outputs: Sequence[TensorQuantization]) -> str:
    arguments = [f"const {C_TYPES[entry.dtype]} *input{i}" for i, entry in enumerate(inputs)]
    arguments += [f"{C_TYPES[entry.dtype]} *output{i}" for i, entry in enumerate(outputs)]
    return f"int {name}_run({', '.join(arguments)})"


def _run(
    name: str, inputs: Sequence[TensorQuantization], outputs: Sequence[TensorQuantization], program: Program
) -> Iterator[str]:
    """The driver: checks the inputs, calls the kernels, copies what no kernel computes."""
    body = [line for i, entry in enumerate(inputs) for line in _checked(i, entry)]
    for call in program.calls:
        body.append(f"  /* {_comment(call.output.name)}: {call.output.type} */")
        body.append(f"  {call.kernel.name}({', '.join(call.arguments)});")
    for copy in program.copies:
        body.append(f"  for (int32_t i = 0; i < {copy.size}; ++i) {{ {copy.target}[i] = ({copy.source})[i]; }}")
    text = "\n".join(body)
    unread = [f"  (void)input{i};" for i in range(len(inputs)) if not re.search(rf"\binput{i}\b", text)]
    yield f"{_prototype(name, inputs, outputs)} {{"
    yield from unread
    yield from body
    yield "  return 0;"
    yield "}"


def _checked(index: int, entry: TensorQuantization) -> list[str]:
    """Refuses what lies outside of the range that the bounds were proven for, where the type holds such."""
    lo, hi = DTYPE_RANGES[entry.dtype]
    place = f"input{index}[i]"
    tests = [f"{place} < {number(entry.lo)}"] if entry.lo > lo else []
    tests += [f"{place} > {number(entry.hi)}"] if entry.hi < hi else []
    if not tests:
        return []
    loop = f"  for (int32_t i = 0; i < {_size(entry)}; ++i) {{"
    return [loop, f"    if ({' || '.join(tests)}) {{ return {index + 1}; }}", "  }"]


def _size(entry: TensorQuantization) -> int:
    return math.prod(entry.shape)


def _includes(dtypes: Collection[str]) -> list[str]:
    return ["#include <stdint.h>", *(["#include <stdbool.h>"] if "bool" in dtypes else [])]


def _comment(name: str) -> str:
    """A name as it may stand in a comment: nothing that ends it or means something to the preprocessor."""
    return re.sub(r"[^\w.:/\[\]-]", "_", name, flags=re.ASCII)


def _text(lines: Iterable[str]) -> str:
    return "\n".join(line.rstrip() for line in lines) + "\n"

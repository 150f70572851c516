"""The two files of a program: a header that says what it takes and gives, and its C99 source."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import Template

import numpy as np

from mrt.backend.te.registry import has_compute
from mrt.export.c.example import example
from mrt.export.c.program import STATE, WORKSPACE, Parameter, Program, make_program
from mrt.export.c_floats import conversions
from mrt.export.c_text import C_TYPES, check_name, comment, described, includes, number, text_of
from mrt.export.description import StatedState, stated_states
from mrt.export.registry import check_covered
from mrt.symbol import Array, Graph
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.quantized_tensor import TensorQuantization
from mrt.version import __version__

VALUES_PER_LINE = 24
EXAMPLE = "_example"
"""What is added to a network's name for the folder that shows how it is used."""


@dataclass(frozen=True)
class CSource:
    """A network in C. files: text by file name, the header first. example: text by path, in a folder of its own.

    workspace_bytes: RAM between inputs and outputs, and state_bytes: that of states, both of an instance.
    parameter_bytes: ROM of the weights.
    """

    files: dict[str, str]
    example: dict[str, str]
    workspace_bytes: int
    state_bytes: int
    parameter_bytes: int


@dataclass(frozen=True, eq=False)
class _Network:
    """What is written. inputs, outputs: arguments of its function by name, in order. states: by name, what they keep,
    and how it begins."""

    name: str
    digest: str
    program: Program
    inputs: dict[str, TensorQuantization]
    outputs: dict[str, TensorQuantization]
    states: dict[str, tuple[TensorQuantization, StatedState]]

    @property
    def state_bytes(self) -> int:
        return sum(_size(entry) * np.dtype(entry.dtype).itemsize for entry, _ in self.states.values())


def to_c(
    graph: Graph,
    inputs: Sequence[TensorQuantization],
    outputs: Sequence[TensorQuantization],
    digest: str,
    name: str = "model",
) -> CSource:
    """C99 that gives for the same integers the same integers as the integer `graph`: `{name}.h` and `{name}.c`.

    It needs a C compiler with <stdint.h> and, where a tensor is bool, <stdbool.h>: no library, no runtime, no float.
    `{name}_run` takes a `{name}_instance`, which holds the tensors in between and the states, then a pointer to the
    elements of each input that is no state and of each output that sets none, in order; they must not overlap. It gives
    0, or the number of the first input, counted from 1, that holds an integer outside of its range: then nothing is
    written. No memory is its own, so that any number of instances work at once.

    inputs, outputs: how the integers of the graph's inputs and outputs stand for real values, in their order; digest:
    what `{name}_digest` holds. Raises ConfigError where `name` is no identifier, UnsupportedOperatorError listing every
    operator that has no form in C, CompilationError naming the symbol where a kernel cannot be made.
    """
    check_name(name)
    check_covered(graph, "C", lambda symbol: has_compute(type(symbol.operator)))
    program, states = make_program(graph), stated_states(graph)
    network = _Network(
        name,
        digest,
        program,
        {f"input{i}": inputs[place] for i, place in enumerate(program.inputs)},
        {f"output{i}": outputs[place] for i, place in enumerate(program.outputs)},
        {f"state{i}": (inputs[state.input], state) for i, state in enumerate(states)},
    )
    shown = example(name, tuple(network.inputs.values()), tuple(network.outputs.values()), bool(states))
    return CSource(
        {f"{name}.h": _header(network), f"{name}.c": _source(network)},
        {f"{name}{EXAMPLE}/{file}": text for file, text in shown.items()},
        program.workspace_bytes,
        network.state_bytes,
        program.parameter_bytes,
    )


def sizes_in(header: str) -> tuple[int, int]:
    """The bytes of an instance's workspace and states, and of the parameters, as a header states them."""
    found = dict(re.findall(r"^#define \w+_(WORKSPACE|STATE|PARAMETER)_BYTES (\d+)$", header, re.MULTILINE))
    return int(found["WORKSPACE"]) + int(found["STATE"]), int(found["PARAMETER"])


def _header(network: _Network) -> str:
    name, prefix, program = network.name, network.name.upper(), network.program
    sides = {**network.inputs, **network.outputs}
    entries = [*sides.values(), *(entry for entry, _ in network.states.values())]
    lines = [
        f"/* An integer network, written by MRT {__version__}.",
        " *",
        " * An integer q stands for the real number scale * (q - zero point).",
        *(f" * {line}" for place, entry in sides.items() for line in ("", *described(place, entry))),
        *(f" * {line}" for state in network.states for line in ("", *_kept(state, *network.states[state]))),
        " */",
        f"#ifndef {prefix}_H",
        f"#define {prefix}_H",
        "",
        *includes({*(entry.dtype for entry in entries), *_workspace_dtypes(program)}),
        "",
        "/* Elements of each tensor. */",
        *(f"#define {prefix}_{place.upper()}_SIZE {_size(entry)}" for place, entry in sides.items()),
        "",
        "/* RAM of an instance, for the tensors in between and for the states, and ROM for the parameters. */",
        f"#define {prefix}_WORKSPACE_BYTES {program.workspace_bytes}",
        f"#define {prefix}_STATE_BYTES {network.state_bytes}",
        f"#define {prefix}_PARAMETER_BYTES {program.parameter_bytes}",
        "",
        *_instance(network),
        *_declarations(network),
        "",
        *conversions(name, list(network.inputs.items()), list(network.outputs.items())),
        "#endif",
    ]
    return text_of(lines)


def _instance(network: _Network) -> Iterator[str]:
    """What a caller has one of for each network at work. The workspace is a union of one array for each dtype, so that
    memory is read as the type that was written."""
    yield "/* What a call needs besides the tensors that it is given; it may lie anywhere, and starts as anything. */"
    yield f"typedef struct {network.name}_instance {{"
    dtypes, size = _workspace_dtypes(network.program), network.program.workspace_bytes
    if dtypes:
        yield "  union {"
        yield from (f"    {C_TYPES[dtype]} of_{dtype}[{size // np.dtype(dtype).itemsize}];" for dtype in dtypes)
        yield "  } workspace;"
    for state, (entry, _) in network.states.items():
        yield f"  {C_TYPES[entry.dtype]} {state}[{_size(entry)}];"
    if not dtypes and not network.states:
        yield "  char nothing;"
    yield f"}} {network.name}_instance;"
    yield ""


def _workspace_dtypes(program: Program) -> list[str]:
    texts = [argument for call in program.calls for argument in call.arguments]
    texts += [text for copy in program.copies for text in (copy.source, copy.target)]
    return [dtype for dtype in C_TYPES if any(f"{WORKSPACE}.of_{dtype} " in text for text in texts)]


_DECLARATIONS = Template("""\
#ifdef __cplusplus
extern "C" {
#endif

/* SHA-256 of the certificate of the model that this was made from. */
extern const char ${name}_digest[${size}];

${reset}/* Computes the outputs from the inputs, which must not overlap them. Instances are independent of each other:
 * threads may run one each.
 *
 * Gives 0, or k where input number k, counted from 1, holds an integer outside of its range: nothing is written
 * then. */
${run};

#ifdef __cplusplus
}
#endif""")
_RESET = Template("""\
/* Makes the states what they are in the first call, which each instance needs. */
void ${name}_reset(${name}_instance *instance);

""")


def _declarations(network: _Network) -> list[str]:
    """What a program may use, for C and C++."""
    reset = _RESET.substitute(name=network.name) if network.states else ""
    size = str(len(network.digest) + 1)
    text = _DECLARATIONS.substitute(name=network.name, size=size, reset=reset, run=_prototype(network))
    return text.splitlines()


def _kept(name: str, entry: TensorQuantization, state: StatedState) -> Iterator[str]:
    """The comment on a state."""
    yield from described(f"{name}, kept between calls", entry)
    is_one = isinstance(state.initial, int)
    values = [state.initial] if is_one else np.ravel(state.initial).tolist()
    yield f"    in the first call {'each element is' if is_one else 'its elements are'} {', '.join(map(str, values))}"


def _source(network: _Network) -> str:
    name, program = network.name, network.program
    kernel = f"{name.upper()}_KERNEL"
    lines = [
        f"/* An integer network, written by MRT {__version__}: see {name}.h. */",
        f'#include "{name}.h"',
        *includes(_dtypes(program)),
        "",
        "/* What C leaves to the compiler, and the kernels rely on; one that has it otherwise refuses these types. */",
        f"typedef char {name}_needs_int_of_32_bits[sizeof(int) >= 4 ? 1 : -1];",
        f"typedef char {name}_needs_right_shifts_that_keep_the_sign[(-3 >> 1) == -2 ? 1 : -1];",
        f"typedef char {name}_needs_conversions_modulo_2_to_the_32[(int32_t)UINT32_C(0xFFFFFFFE) == -2 ? 1 : -1];",
        "",
        "#ifdef __cplusplus",
        "#define restrict __restrict",
        "#endif",
        "",
        "/* Without this, GCC 12 at -O2 specializes kernels for their places in the workspace and then loses calls. */",
        "#if defined(__GNUC__) && __GNUC__ >= 8 && !defined(__clang__)",
        f"#define {kernel} static __attribute__((noipa))",
        "#else",
        f"#define {kernel} static",
        "#endif",
        "",
        f'const char {name}_digest[{len(network.digest) + 1}] = "{network.digest}";',
        "",
        *(line for parameter in program.parameters for line in (*_parameter(parameter), "")),
        *(line for each in program.kernels for line in (f"{kernel} {each.text}", "")),
        *_reset(network),
        *_run(network),
    ]
    return text_of(lines)


def _dtypes(program: Program) -> set[str]:
    """The dtypes that kernels and parameters name."""
    words = {word for kernel in program.kernels for word in re.findall(r"\w+", kernel.text)}
    return {dtype for dtype, kind in C_TYPES.items() if kind in words} | {
        p.value.dtype.name for p in program.parameters
    }


def _parameter(parameter: Parameter) -> Iterator[str]:
    yield f"/* {', '.join(comment(symbol.name) for symbol in parameter.symbols)} */"
    yield from _constant(parameter.name, parameter.value)


def _constant(name: str, value: Array) -> Iterator[str]:
    """An array of rank 1."""
    yield f"static const {C_TYPES[value.dtype.name]} {name}[{value.size}] = {{"
    for start in range(0, value.size, VALUES_PER_LINE):
        row = value[start : start + VALUES_PER_LINE].astype(np.int64).tolist()
        yield f"  {', '.join(map(number, row))},"
    yield "};"


def _prototype(network: _Network) -> str:
    arguments = [f"{network.name}_instance *instance"]
    arguments += [f"const {C_TYPES[entry.dtype]} *{place}" for place, entry in network.inputs.items()]
    arguments += [f"{C_TYPES[entry.dtype]} *{place}" for place, entry in network.outputs.items()]
    return f"int {network.name}_run({', '.join(arguments)})"


def _reset(network: _Network) -> Iterator[str]:
    """What sets all states, each sample of a batch alike."""
    if not network.states:
        return
    firsts = {
        state: np.ravel(np.asarray(stated.initial)).astype(entry.dtype)
        for state, (entry, stated) in network.states.items()
    }
    for state, first in firsts.items():
        yield from _constant(f"{state}_first", first)
    yield f"void {network.name}_reset({network.name}_instance *instance) {{"
    for i, (state, (entry, _)) in enumerate(network.states.items()):
        place = f"i % {firsts[state].size}" if firsts[state].size > 1 else "0"
        yield f"  for (int32_t i = 0; i < {_size(entry)}; ++i) {{ {STATE}{i}[i] = {state}_first[{place}]; }}"
    yield "}"
    yield ""


def _run(network: _Network) -> Iterator[str]:
    """The driver: checks the inputs, calls the kernels, copies what no kernel computes, keeps the states."""
    program = network.program
    body = [line for i, entry in enumerate(network.inputs.values()) for line in _checked(i, entry)]
    for call in program.calls:
        body.append(f"  /* {comment(call.output.name)}: {call.output.type} */")
        body.append(f"  {call.kernel.name}({', '.join(call.arguments)});")
    for copy in program.copies:
        body.append(f"  for (int32_t i = 0; i < {copy.size}; ++i) {{ ({copy.target})[i] = ({copy.source})[i]; }}")
    text = "\n".join(body)
    unread = [f"  (void){place};" for place in ("instance", *network.inputs) if not re.search(rf"\b{place}\b", text)]
    yield f"{_prototype(network)} {{"
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

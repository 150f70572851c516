"""The files of a library: linked machine code, and a header that says what it takes and gives."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from string import Template

from mrt.backend import Job, KernelCache, NativeCode, compile_native
from mrt.compilation import NATIVE, Target
from mrt.errors import CompilationError
from mrt.export.c_text import check_name, comment, described, includes, text_of
from mrt.export.library.interface import Interface
from mrt.runtime import MAIN, REAL, Linkable
from mrt.runtime.threads import POOL, source
from mrt.symbol import Graph
from mrt.symbol.quantized_tensor import TensorQuantization
from mrt.version import __version__

CONSTANTS = "constants.bin"
_ASSEMBLY = f"""        .section .rodata
        .balign 64
        .globl mrt_constants
        .hidden mrt_constants
mrt_constants:
        .incbin "{CONSTANTS}"
        .section .note.GNU-stack,"",%progbits
"""
_DECLARATIONS = Template("""\
#ifdef __cplusplus
extern "C" {
#endif

/* SHA-256 of the certificate of the model that this was made from. */
extern const char ${name}_digest[${size}];

/* The network with memory and threads of its own. There may be any number, all at work at once, each called by one
 * thread at a time. */
typedef struct ${name}_instance ${name}_instance;

/* An instance that uses `threads` threads, the caller's among them; 1 starts none. NULL where there is not the
 * memory, a thread cannot be started, or the processor does not give registers that the code uses. */
${name}_instance *${name}_create(int threads);
void ${name}_destroy(${name}_instance *instance);

${reset}
void ${name}_reset(${name}_instance *instance);

/* Real values for real values, and integers for integers, of `samples` samples, 1 or more, in the order of the
 * arguments; outputs must not overlap inputs.
 *
 * Gives 0, or k where input number k, counted from 1, holds NaN or an integer outside of its range: nothing is
 * computed then; -1 where a kernel has no memory, -2 where there are states and another number of samples than the
 * batch, -3 for less than one sample. */
${run};
${run_integers};

#ifdef __cplusplus
}
#endif
""")
_RESET = """\
/* Makes the states what they are in the first call. Calls take {}_BATCH samples, one of each stream; each of the two
 * functions below has states of its own. */"""
_NO_RESET = "/* Does nothing: this network keeps nothing between calls. */"


def to_library(
    graph: Graph,
    inputs: Sequence[TensorQuantization],
    outputs: Sequence[TensorQuantization],
    postprocess: Graph | None,
    digest: str,
    name: str = "model",
    target: Target = NATIVE,
) -> dict[str, bytes]:
    """`{name}.h` and `lib{name}.so`, by name: the code of `compile_model` behind functions of C.

    It gives the integers of the integer `graph`, and for real values those of the compiled module, the float tail
    included. It needs libc with its threads and libm, nothing else. The arguments are those of `compile_model`.
    Raises what that does, ConfigError where `name` is no identifier, CompilationError where linking fails.
    """
    check_name(name)
    job = Job.of(graph, inputs, outputs, postprocess, digest, target)
    code = compile_native(job, KernelCache.usual())
    interface = Interface(name, digest, code)
    header = _header(interface).encode()
    return {f"{name}.h": header, f"lib{name}.so": _linked(interface, header)}


def _linked(interface: Interface, header: bytes) -> bytes:
    """The shared library, whose only symbols are those of the header."""
    symbols = " ".join(f"{each};" for each in interface.symbols)
    parts = {
        f"{interface.name}.h": header,
        "interface.c": interface.source().encode(),
        POOL: source(POOL).encode(),
        "constants.s": _ASSEMBLY.encode(),
        CONSTANTS: interface.code.constants,
        "exported.map": f"{{ global: {symbols} local: *; }};\n".encode(),
    }
    try:
        with tempfile.TemporaryDirectory() as held:
            folder = Path(held)
            for file, content in parts.items():
                (folder / file).write_bytes(content)
            path = folder / f"lib{interface.name}.so"
            Linkable(interface.code.objects, interface.code.linker).link(path, _options(path))
            return path.read_bytes()
    except OSError as error:
        raise CompilationError(
            f"the library cannot be linked: {error.strerror or error}; name another folder for temporary files by "
            f"TMPDIR"
        ) from error


def _options(path: Path) -> list[str]:
    """What the linker is told besides the objects: the interface in C and the constants among it."""
    folder = path.parent
    return [
        *("-O3", "-std=gnu99", "-x", "c", str(folder / "interface.c")),
        *("-x", "assembler", "-Xassembler", f"-I{folder}", str(folder / "constants.s"), "-x", "none"),
        *(f"-Wl,--version-script={folder / 'exported.map'}", f"-Wl,-soname,{path.name}"),
        *("-Wl,--as-needed", "-Wl,--no-undefined", "-Wl,-s", "-static-libgcc", "-pthread", "-lm"),
    ]


def _header(interface: Interface) -> str:
    name, prefix = interface.name, interface.name.upper()
    functions = interface.code.functions.values()
    lines = [
        f"/* A network compiled by MRT {__version__}: lib{name}.so, for {_machine(interface.code)}.",
        " *",
        " * An integer q stands for the real number scale * (q - zero point).",
        *(f" * {line}" for line in _facts(interface)),
        " */",
        f"#ifndef {prefix}_H",
        f"#define {prefix}_H",
        "",
        *includes({type.dtype for each in functions for _, type in (*each.inputs, *each.outputs)}),
        "",
        "/* Samples that go through the network at once; any number may be given where there are no states. */",
        f"#define {prefix}_BATCH {interface.batch}",
        "",
        "/* Elements of one sample of each tensor. */",
        *(f"#define {prefix}_{each.name.upper()}_SIZE {each.size}" for each in interface.given(REAL)),
        *(f"#define {prefix}_{each.name.upper()}_SIZE {each.size}" for each in interface.wanted(REAL)),
        *(f"#define {prefix}_INTEGER_{each.name.upper()}_SIZE {each.size}" for each in interface.wanted(MAIN)),
        "",
        *_declarations(interface),
        "",
        "#endif",
    ]
    return text_of(lines)


def _machine(code: NativeCode) -> str:
    target = code.metadata.made_from.target
    return " ".join(word for word in (target.mtriple, target.mcpu, *target.features) if word)


def _facts(interface: Interface) -> Iterator[str]:
    """The comments on what the functions take and give."""
    metadata, real = interface.code.metadata, interface.code.functions[REAL]
    for index, place in enumerate(interface.fed):
        entry = metadata.inputs[place]
        yield ""
        yield from described(f"input{index}", entry)
        yield f"    {'taken as integers by both functions' if entry.is_given else 'real values of it are float'}"
    for index, place in enumerate(interface.results(MAIN)):
        yield ""
        yield from described(f"output{index} of integers", metadata.outputs[place])
    for index, place in enumerate(interface.results(REAL)):
        name, type = real.outputs[place]
        yield ""
        yield f"output{index} of real values: {comment(name)}, {type.dtype}[{', '.join(map(str, type.shape))}]"
    for state in metadata.states:
        yield ""
        yield f"{comment(state.input)} is a state, which an instance keeps between calls"


def _declarations(interface: Interface) -> list[str]:
    """What a program may use, for C and C++."""
    has_states = bool(interface.code.metadata.states)
    words = {
        "name": interface.name,
        "size": str(len(interface.digest) + 1),
        "reset": _RESET.format(interface.name.upper()) if has_states else _NO_RESET,
        "run": interface.prototype(REAL, "run"),
        "run_integers": interface.prototype(MAIN, "run_integers"),
    }
    return _DECLARATIONS.substitute(words).splitlines()

"""A quantized model in the formats of others: the methods by which it writes itself."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mrt.compilation import NATIVE, Target
from mrt.errors import ConfigError, GraphError, ModelFileError
from mrt.messages import short
from mrt.paths import as_path
from mrt.symbol import Graph
from mrt.symbol.files import atomic_write_all
from mrt.symbol.quantized_tensor import TensorQuantization

if TYPE_CHECKING:
    import tvm
    from onnx import ModelProto
    from typing_extensions import Self


class Exporting:
    """What `QuantizedModel` writes; `mrt export` calls the method to_NAME of a format."""

    if TYPE_CHECKING:
        graph: Graph
        inputs: tuple[TensorQuantization, ...]
        outputs: tuple[TensorQuantization, ...]
        postprocess: Graph | None

        @property
        def digest(self) -> str: ...

        @property
        def states(self) -> dict[str, str]: ...

        def rebatched(self, batch: int) -> Self: ...

    def to_relax(self, target: Target | None = None) -> tvm.IRModule:
        """A Relax module whose `main` takes and returns integers; scales and zero points are its attributes.

        `tvm.compile` compiles it for every target of LLVM to the integers of `Graph.evaluate`. target: as `compile`
        takes it, a CPU whose instructions the module may use. It is then to be compiled for that CPU, or one with the
        same instructions: `tvm.compile` refuses others. Tiles (AMX), which a process must ask for, are used by
        `compile` alone. TVM's target `c` is not among those: it has no vectors, and TVM 0.27 writes wrong C for
        maxima and minima that follow each other; `to_c` gives C.
        Raises CompilationError for a target that is not known, or where TVM fails.
        """
        from mrt.backend import build_portable

        module = build_portable(self.graph, target=target)
        facts: dict[str, Any] = {side: [e.to_json() for e in getattr(self, side)] for side in ("inputs", "outputs")}
        facts |= {"states": self.states} if self.states else {}
        return module.with_attr("mrt.quantization", json.dumps(facts))

    def to_onnx(
        self,
        path: str | os.PathLike[str],
        batch: int | Literal["any"] | None = None,
        ends: Literal["integer", "float"] = "integer",
    ) -> tuple[Path, ...]:
        """Writes the model to `path` as an ONNX model of integer operators; see `mrt.export.onnx.to_onnx`.

        batch: samples at once, if other than the graph has; "any" for a model that takes any number of them, whose
        axis 0 is called "batch". ends: whether it takes and gives integers, whose scales, ranges and digest are in its
        metadata, or real values: then it quantizes them itself, and the float tail, where one was cut off, is in it
        (`mrt.export.onnx.to_real_onnx`). Gives the files written.
        Raises GraphError where the batch cannot be changed, UnsupportedOperatorError listing what ONNX cannot express,
        ConfigError for other ends, ModelFileError where the model exceeds the 2 GiB of an ONNX file or cannot be
        written.
        """
        from mrt.export.onnx import ANY, to_onnx, to_real_onnx, with_any_batch

        def export(size: int | None) -> ModelProto:
            sized = self if size is None else self.rebatched(size)
            if ends == "float":
                return to_real_onnx(sized.graph, sized.inputs, sized.outputs, sized.postprocess, self.digest)
            return to_onnx(sized.graph, sized.inputs, sized.outputs, self.digest)

        file = as_path(path, "path")
        if isinstance(batch, str) and batch != ANY:
            raise GraphError(f"batch is {short(batch)}; a number of samples, or {ANY!r}, is needed")
        if ends not in ("integer", "float"):
            raise ConfigError(f"ends is {short(ends)}; integer or float is needed")
        model = with_any_batch(export) if isinstance(batch, str) else export(batch)
        return _written({file: model.SerializeToString(deterministic=True)})

    def to_relay(self, path: str | os.PathLike[str], batch: int | None = None) -> tuple[Path, ...]:
        """Writes the integer graph as Relay text to `path`, and its parameters beside it, the suffix being .params.

        See `mrt.export.relay.to_relay`. batch, the result and errors are those of `to_onnx`.
        """
        from mrt.export.relay import to_relay

        path = as_path(path, "path")
        sized = self if batch is None else self.rebatched(batch)
        if path.suffix == ".params":
            raise ModelFileError(
                f"{path} is where the parameters go; name the text, such as {path.with_suffix('.relay')}"
            )
        text, parameters = to_relay(sized.graph, sized.inputs, sized.outputs, self.digest)
        return _written({path.with_suffix(".params"): parameters, path: text.encode()})

    def to_mxnet(self, prefix: str | os.PathLike[str], batch: int | None = None) -> tuple[Path, ...]:
        """Writes the integer graph as a checkpoint of MXNet 1.x: PREFIX-symbol.json and PREFIX-0000.params.

        See `mrt.export.mxnet.to_mxnet`. batch, the result and errors are those of `to_onnx`.
        """
        from mrt.export.mxnet import to_mxnet

        as_path(prefix, "prefix")
        sized = self if batch is None else self.rebatched(batch)
        text, parameters = to_mxnet(sized.graph, sized.inputs, sized.outputs, self.digest)
        base = os.fspath(prefix)
        return _written({Path(f"{base}-0000.params"): parameters, Path(f"{base}-symbol.json"): text.encode()})

    def to_c(
        self, directory: str | os.PathLike[str], batch: int | None = None, name: str = "model"
    ) -> tuple[Path, ...]:
        """Writes the integer graph as C99 into `directory`, made if need be: NAME.h and NAME.c, and beside them the
        folder NAME_example with a program that uses them.

        name: what the files and their functions are called by. See `mrt.export.c.to_c`. batch, the result and errors
        are those of `to_onnx`; besides ConfigError where `name` is no identifier, CompilationError where TVM fails.
        """
        from mrt.export.c import EXAMPLE, to_c

        folder = as_path(directory, "directory")
        sized = self if batch is None else self.rebatched(batch)
        source = to_c(sized.graph, sized.inputs, sized.outputs, self.digest, name)
        _make_folder(folder / f"{name}{EXAMPLE}")
        return _written({folder / file: text.encode() for file, text in (source.files | source.example).items()})

    def to_library(
        self,
        directory: str | os.PathLike[str],
        batch: int | None = None,
        name: str = "model",
        target: Target = NATIVE,
    ) -> tuple[Path, ...]:
        """Writes the model as a shared library with a C interface into `directory`: NAME.h and libNAME.so.

        It has the kernels of the compiled module and needs neither TVM nor Python. It takes and gives real values, the
        float tail included, or integers. batch: samples that go through the network at once, if other than the graph
        has; any number may be given. target: as `compile` takes it. See `mrt.export.library.to_library`. The result and
        errors are those of `to_c`, besides CompilationError for a target that is not known, or where linking fails.
        """
        from mrt.export.library import to_library

        folder = as_path(directory, "directory")
        sized = self if batch is None else self.rebatched(batch)
        parts = sized.graph, sized.inputs, sized.outputs, sized.postprocess, self.digest
        files = to_library(*parts, name, target)
        _make_folder(folder)
        return _written({folder / file: content for file, content in files.items()})


def _make_folder(folder: Path) -> None:
    """ModelFileError where it is not there and cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelFileError(f"{folder} cannot be made: {error.strerror or error}; name another folder") from None


def _written(files: Mapping[Path, bytes]) -> tuple[Path, ...]:
    """Writes all files or none, and gives their paths."""
    atomic_write_all(files)
    return tuple(files)

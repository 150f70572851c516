"""The samples that judge, which stay where they were read, and what networks give for them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mrt.datasets import Dataset
from mrt.errors import DataError
from mrt.evaluation import batched, in_batches
from mrt.execution import Executor, Program
from mrt.model import QuantizedModel
from mrt.runtime import Module
from mrt.symbol import Array, Graph
from mrt.symbol.quantized_tensor import TensorQuantization
from mrt.work import default_runner


@dataclass(frozen=True, eq=False)
class _Samples:
    """Those of a dataset from one to another."""

    data: Dataset
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class _Batch:
    """Their arrays by input name. carried: see `Keeps`."""

    arrays: Mapping[str, Array]
    carried: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _Integer:
    """Gives the real outputs of a compiled module, before post-processing."""

    inputs: Sequence[TensorQuantization]
    outputs: Sequence[TensorQuantization]

    def __call__(self, batch: _Batch, module: Module) -> list[Array]:
        given = {entry.name: entry.quantize(batch.arrays[entry.name]) for entry in self.inputs}
        found = module.run_integer(given)
        listed = found if isinstance(found, list) else [found]
        return [entry.dequantize(value) for entry, value in zip(self.outputs, listed, strict=True)]


def _read(samples: _Samples) -> _Batch:
    return _Batch(samples.data.batch(samples.start, samples.stop))


def _float(batch: _Batch, program: Program) -> list[Array]:
    return in_batches(program, dict(batch.arrays))


class Judges:
    """Batches of the samples that judge. labels: of each batch, None where there are none."""

    def __init__(self, data: Dataset, batch_size: int, executor: Executor) -> None:
        """Raises DataError where the samples are unusable, or the folder for temporary files has no room for them."""
        spans = [(start, min(start + batch_size, data.size)) for start in range(0, data.size, batch_size)]
        self.labels = [None if data.labels is None else data.labels[start:stop] for start, stop in spans]
        self._data, self._batch_size, self._executor = data, batch_size, executor
        try:
            self._kept = executor.kept(_read, [_Samples(data, *span) for span in spans])
        except OSError as error:
            raise DataError(
                f"{data.name}: the samples that judge cannot be kept in {tempfile.gettempdir()}: {error.strerror}; "
                f"make room, or name another folder by TMPDIR"
            ) from error

    def first(self, count: int) -> dict[str, Array]:
        """At most so many samples, of the first batch."""
        return self._data.batch(0, min(count, self._batch_size, self._data.size))

    def float(self, graph: Graph) -> list[list[Array]]:
        """The outputs of a float graph for each batch; GraphError where their axis 0 is not the batch."""
        program = batched(graph, default_runner(), self._batch_size)
        return list(self._executor.in_order(_float, self._kept, (program,), most=1))

    def integer(self, model: QuantizedModel, module: Module) -> Iterator[list[Array]]:
        """The real outputs of a compiled model, before post-processing, for each batch in turn."""
        return self._executor.in_order(_Integer(model.inputs, model.outputs), self._kept, (module,), most=1)

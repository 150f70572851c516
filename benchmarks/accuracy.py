"""Accuracy of a network by granularity, changes of parameters, bias correction and bits; a line for each combination.

    MRT_DATA=/path/to/data python benchmarks/accuracy.py benchmarks/configs/mobilenet_v1_0.25_224.yaml
    MRT_DATA=/path/to/data python benchmarks/accuracy.py benchmarks/configs/resnet20_cifar10.yaml --rescaled

The network is prepared and calibrated once, as its configuration says; every combination of the options given is then
quantized, compiled and scored on the test data. The lines are those of the tables of docs/accuracy.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from command_line import Parser, whole

from mrt.backend import TvmRunner
from mrt.calibration import Calibration, calibrate
from mrt.config import DatasetConfig, RunConfig, load_config
from mrt.datasets import Dataset, load_dataset
from mrt.errors import ConfigError, MRTError
from mrt.evaluation import Comparison, Measured, compare, run_batched
from mrt.frontend import load_model
from mrt.model import QuantizedModel, assemble
from mrt.preparation import prepare
from mrt.quantization.algorithms.algorithm import ParameterChange, Samples, find_algorithm
from mrt.quantization.algorithms.bias_correction import find_corrections
from mrt.quantization.algorithms.moments import with_moments
from mrt.quantization.algorithms.needs import needs_of
from mrt.quantization.expand import expand_graph
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Array, Graph, Symbol
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.pad import Pad

BATCH = 50
"""Samples that are fetched and scored at once; no figure depends on it."""
WIDEST = 64.0
"""The largest factor by which --rescaled spreads channels."""
SAME = 1e-4
"""How far rescaling may move a logit, as a share of the largest: float32 rounding through twenty layers."""
COLUMNS = (
    *("bits", "quantizer", "granularity", "changes", "correction"),
    *("top-1, float", "top-1", "agreement", "SQNR", "operators", "seconds"),
)


def main() -> None:
    arguments = _parser().parse_args()
    if not os.environ.get("MRT_DATA"):
        print("skipped: the variable MRT_DATA is not set; it names the folder of models and data")
        return
    try:
        _report(arguments)
    except MRTError as error:
        sys.exit(str(error))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    parser.add_argument("config", type=Path, help="a configuration of `mrt run`")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as of `mrt run`")
    parser.add_argument("--samples", type=whole(1), help="how many test samples are scored; by default all")
    parser.add_argument("--rescaled", action="store_true", help="spread the channels between layers by up to 64")
    parser.add_argument("--seed", type=whole(0), default=0, help="of --rescaled")
    parser.add_argument(
        "--granularity",
        nargs="+",
        type=_choice("granularity", "layer, auto or a number of channels (after a slash: layer or a number)"),
        default=["layer", "16/16", "4/4", "1", "1/1", "auto"],
        help="of activations: layer, auto or how many channels share a scale; after a slash that of weights (layer)",
    )
    parser.add_argument(
        "--quantizer",
        nargs="+",
        type=_choice("quantizer", "symmetric or affine (after a slash again)"),
        default=["symmetric"],
        help="of activations: symmetric or affine; after a slash that of weights, where it is another",
    )
    parser.add_argument(
        "--parameter-changes",
        nargs="+",
        type=_choice("parameter_changes", "none, equalize, smooth or several, joined by a plus"),
        default=["none"],
        help="what is done to the float parameters before, such as equalize or equalize+smooth",
    )
    parser.add_argument(
        "--bias-correction",
        nargs="+",
        type=_choice("bias_correction", "none, fast or sequential"),
        default=["none", "fast", "sequential"],
    )
    parser.add_argument(
        "--bits",
        nargs="+",
        type=_choice("bits", "a whole number from 2 to 16"),
        default=["8", "6", "5"],
        help="of activations and weights; after a slash those of weights, where they are others",
    )
    return parser


def _choice(field: str, needed: str) -> Callable[[str], Any]:
    """What reads a value of one field of a Case; the quantizer's own options decide what is allowed."""

    def read(text: str) -> Any:
        try:
            dataclasses.replace(PLAIN, **{field: text}).options(QuantizationConfig())
        except (ConfigError, ValueError):
            raise argparse.ArgumentTypeError(f"{text!r} was found; {needed} is needed") from None
        return text

    return read


@dataclasses.dataclass(frozen=True)
class Case:
    """One combination, as on the command line."""

    quantizer: str
    granularity: str
    bias_correction: str
    bits: str
    parameter_changes: str = "none"

    def options(self, base: QuantizationConfig) -> QuantizationConfig:
        """`base` with what this combination sets; ConfigError where that is not allowed."""
        quantizer, *weight_quantizer = self.quantizer.split("/", 1)
        granularity, *weight_granularity = self.granularity.split("/", 1)
        bits, *weight_bits = (int(part) for part in self.bits.split("/", 1))
        activation = _options(bits, quantizer, granularity)
        quantizers, granularities = weight_quantizer or [quantizer], weight_granularity or ["layer"]
        weight = _options(*(weight_bits or [bits]), *quantizers, *granularities)
        given = base.model_dump(exclude_unset=True)
        changed = {
            "activation": given.get("activation", {}) | activation,
            "weight": given.get("weight", {}) | weight,
            "bias_correction": self.bias_correction,
            "parameter_changes": self.changes,
        }
        return QuantizationConfig.model_validate(given | changed)

    @property
    def changes(self) -> list[str]:
        return [] if self.parameter_changes == "none" else self.parameter_changes.split("+")

    @property
    def cells(self) -> tuple[str, ...]:
        return self.bits, self.quantizer, self.granularity, self.parameter_changes, self.bias_correction


PLAIN = Case("symmetric", "layer", "none", "8")
"""In which each option's values are tried."""


def _options(bits: str, quantizer: str, granularity: str) -> dict[str, object]:
    step = {"channel": int(granularity)} if granularity.isdecimal() else granularity
    return {"bits": int(bits), "quantizer": quantizer, "granularity": step}


def _cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """The combinations by bits, then by quantizer, granularity, changes of parameters and correction."""
    shapes = (arguments.bits, arguments.quantizer, arguments.granularity)
    for bits, quantizer, granularity, changes, correction in itertools.product(
        *shapes, arguments.parameter_changes, arguments.bias_correction
    ):
        yield Case(quantizer, granularity, correction, bits, changes)


def _report(arguments: argparse.Namespace) -> None:
    """Prints a line for every combination, as it is found."""
    network = Network.load(load_config(arguments.config, arguments.set), arguments)
    spread = f", channels rescaled by up to {WIDEST:g}, seed {arguments.seed}" if arguments.rescaled else ""
    print(f"{arguments.config.stem}{spread}, {network.test.size} samples\n")
    print(_row(COLUMNS))
    print(_row(["---"] * len(COLUMNS)))
    for case in _cases(arguments):
        print(_row((*case.cells, *network.score(case))), flush=True)


@dataclasses.dataclass(frozen=True, eq=False)
class Network:
    """A prepared and calibrated network with its data. logits: float, of all test samples."""

    config: RunConfig
    graph: Graph
    calibration: Calibration
    samples: Samples
    test: Dataset
    logits: Array

    @classmethod
    def load(cls, config: RunConfig, arguments: argparse.Namespace) -> Network:
        graph = prepare(load_model(config.model.path), config.prepare).graph
        test = _data(config.data.test, graph, "data.test").first(arguments.samples)
        logits = _logits(graph, config, test)
        if arguments.rescaled:
            graph = rescaled(graph, np.random.default_rng(arguments.seed))
            moved = np.abs(_logits(graph, config, test) - logits).max() / np.abs(logits).max()
            if moved > SAME:
                sys.exit(f"rescaling moved the logits by {moved:.2g} of the largest; {SAME:g} are allowed")
        data = _data(config.data.calibration, graph, "data.calibration")
        batches, runner = _Batches(data, config.calibrate.batch_size), TvmRunner()
        changes = dict.fromkeys(name for case in _cases(arguments) for name in case.changes)
        every = config.quantize.model_copy(update={"parameter_changes": tuple(changes)})
        found = calibrate(graph, batches, needs_of(graph, every, also_later=True), config.calibrate, runner)
        return cls(config, graph, found, Samples(batches, config.calibrate, runner), test, logits)

    def score(self, case: Case) -> tuple[str, ...]:
        """The cells of one combination's figures; the reason where it is refused."""
        started = time.perf_counter()
        options = case.options(self.config.quantize)
        try:
            graph, observed = self._changed(options)
            observed = with_moments(graph, observed, options, self.samples)
            corrections = find_corrections(graph, observed, options, self.samples)
            integer = expand_graph(graph, observed.ranges, options, corrections, observed)
        except MRTError as error:
            return (f"refused: {error}",)
        found = self._compare(assemble(integer, None, observed.ranges))
        shares = (found.float_top1, found.integer_top1, found.agreement)
        figures = ["-" if share.value is None else f"{100 * share.value:.2f} %" for share in shares]
        noise = "-" if found.noise.sqnr_db is None else f"{found.noise.sqnr_db:.2f} dB"
        return *figures, noise, str(len(integer.graph.operators)), f"{time.perf_counter() - started:.0f}"

    def _changed(self, options: QuantizationConfig) -> tuple[Graph, Calibration]:
        """The network with its parameters changed, and its calibration."""
        graph, observed, samples = self.graph, self.calibration, self.samples
        for name in options.parameter_changes:
            changed = find_algorithm(ParameterChange, name).change(graph, observed, options, samples)
            graph, known = changed.graph, changed.observed
            needs = needs_of(graph, options, also_later=True)
            if known is None or not known.covers(needs):
                known = calibrate(graph, samples.batches, needs, samples.config, samples.runner)
            observed = known
        return graph, observed

    def _compare(self, model: QuantizedModel) -> Comparison:
        module = model.compile(self.config.compile.target, self.config.compile.batch)
        kept = iter(np.array_split(self.logits, range(BATCH, self.test.size, BATCH)))

        def reference(feeds: Mapping[str, Array]) -> Measured:
            logits = next(kept)
            return Measured([logits], [logits])

        def measured(feeds: Mapping[str, Array]) -> Measured:
            found = module.run_integer(model.quantize_inputs(feeds))
            logits = model.dequantize_outputs(found if isinstance(found, list) else [found])
            return Measured(logits, logits)

        return compare(self.test.batches(BATCH), self.test.labels, reference, measured)


@dataclasses.dataclass(frozen=True)
class _Batches:
    """The batches of a dataset, as often as they are iterated over."""

    data: Dataset
    batch_size: int

    def __iter__(self) -> Iterator[dict[str, Array]]:
        return self.data.batches(self.batch_size)


def _data(config: DatasetConfig | None, graph: Graph, name: str) -> Dataset:
    if config is None:
        sys.exit(f"the configuration has no {name}")
    return load_dataset(config, {symbol.name: symbol.type for symbol in graph.inputs}, name)


def _logits(graph: Graph, config: RunConfig, data: Dataset) -> Array:
    """The float network's first output for all samples."""
    evaluate = run_batched(graph, TvmRunner(), config.evaluate.batch_size)
    return np.concatenate([evaluate(feeds)[0] for feeds in data.batches(BATCH)])


def rescaled(graph: Graph, random: np.random.Generator) -> Graph:
    """The same function with badly spread channels: between two layers each has its own factor, from 1 to WIDEST.

    Where nothing but a convolution reads relu(conv(x) + b), the output channels of the former are multiplied by
    factors f >= 0 and the input channels of the latter divided by them, since relu(f x) = f relu(x). The factors are
    spread evenly over their logarithm.
    """
    changed: dict[str, Array] = {}
    for reader in graph.operators:
        found = _written_by(graph, reader)
        if found is None:
            continue
        first, bias = found
        factors = WIDEST ** random.random(first.shape[1])
        for parameter, shape, change in (
            (first.inputs[1], (-1, 1, 1, 1), np.multiply),
            (bias, (1, -1, 1, 1), np.multiply),
            (reader.inputs[1], (1, -1, 1, 1), np.divide),
        ):
            value = changed.get(parameter.name, graph.parameters[parameter.name])
            changed[parameter.name] = change(value, factors.reshape(shape)).astype(value.dtype)
    if not changed:
        sys.exit("no two convolutions have nothing but a relu between them; there is nothing to rescale")
    return Graph(graph.inputs, graph.outputs, dict(graph.parameters) | changed)


def _written_by(graph: Graph, reader: Symbol) -> tuple[Symbol, Symbol] | None:
    """The convolution, and its bias, whose relu only `reader` takes, itself a convolution; None where there is none."""
    if not _is_dense(reader):
        return None
    source = reader.inputs[0]
    has_relu = False
    while isinstance(source.operator, (Pad, Relu)) and len(graph.consumers[source]) == 1:
        has_relu |= isinstance(source.operator, Relu)
        source = source.inputs[0]
    if not has_relu or not isinstance(source.operator, BroadcastAdd) or len(graph.consumers[source]) != 1:
        return None
    first, bias = source.inputs
    alone = all(len(graph.consumers[symbol]) == 1 for symbol in (first, bias, first.inputs[1], reader.inputs[1]))
    return (first, bias) if alone and _is_dense(first) and graph.value(bias) is not None else None


def _is_dense(symbol: Symbol) -> bool:
    return isinstance(symbol.operator, Convolution) and symbol.operator.num_group == 1 and symbol.type.rank == 4


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()

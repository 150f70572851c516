"""Running a network as many quantizations would have it, and the errors of its outputs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from mrt.calibration import Calibration
from mrt.calibration.network import FloatNetwork, values_at
from mrt.calibration.stream import Chunk, chunks
from mrt.collector import give_back_freed
from mrt.execution import THREADS, Executor, Program
from mrt.quantization.algorithms.algorithm import Samples, float_network
from mrt.quantization.cost import network_operations
from mrt.quantization.expand import PlannedGraph, RoundedWeights, plan_graph, rounded_weights
from mrt.quantization.integer.rounder import AsAsked
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.simulation.nearby import RunNearby, shared_errors
from mrt.quantization.simulation.on_chunk import OnChunk, energies_of, length_of
from mrt.quantization.simulation.parts import WHOLE, Parts, cut, parts_of, shared_out
from mrt.quantization.simulation.rounded_graph import OtherWeights, Site, measured, rounded_graph
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Array, Graph, Symbol
from mrt.symbol.rebatch import batch_of, sized

MOST_SAMPLES, MOST_BATCH = 32, 4
"""How many samples errors are taken over at most, and how many run at once on a core."""


@dataclass(frozen=True, eq=False)
class Trial:
    """What is tried.

    rounded: the names of the sites that round, None for all of them. finer: how many bits more than planned sites have,
    by name. corrections: what is added to outputs of reductions, (O,) by name. plan: that says the grids, by default
    the simulation's. samples: how many are run, None for all there are. weights: the names of the reductions whose
    weights are rounded, None for all of them; a simulation without gates knows no other. instead: by the name of a
    reduction the number of the weight, of the simulation's `others`, that stands for its own.
    """

    rounded: frozenset[str] | None = None
    finer: Mapping[str, int] = field(default_factory=dict)
    corrections: Mapping[str, Array] = field(default_factory=dict)
    plan: Plan | None = None
    samples: int | None = None
    weights: frozenset[str] | None = None
    instead: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Run:
    """Runs trials on chunks. feeds: of each trial; keys: what tells them apart at each part."""

    parts: Parts
    feeds: Mapping[int, Mapping[str, Array]]
    keys: Mapping[int, Sequence[bytes]]

    def __call__(self, asked: OnChunk, *programs: Program) -> tuple[int, dict[int, Array]]:
        """The place, and by trial the energies of signal and error, (2, outputs)."""
        arrays, found = asked.chunk.arrays, dict[int, Array]()
        keys = {number: self.keys[number] for number in asked.trials}
        for branch in self.parts.branches(programs, arrays, self.feeds, keys):
            outputs = self.parts.outputs(programs, arrays, self.feeds[branch.trials[0]], branch)
            found |= dict.fromkeys(branch.trials, energies_of(asked.chunk, asked.exact, asked.reference, outputs))
        return asked.place, found


@dataclass(frozen=True, eq=False)
class _RunWhole:
    """Gives the outputs of one trial on a chunk."""

    parts: Parts
    feeds: Mapping[str, Array]

    def __call__(self, chunk: Chunk, *programs: Program) -> list[Array]:
        return _copied(self.parts.outputs(programs, chunk.arrays, self.feeds, WHOLE))


class Simulation:
    """A network with the weights that its integers stand for, at grids and with corrections that each trial says.

    plan: of the network as it was configured. weights: the names of the reductions whose weights are integers. sites:
    where tensors are rounded. outputs: the names of the tensors whose errors are taken. Results depend on neither the
    number of cores nor what was tried before.
    """

    def __init__(
        self,
        plan: Plan,
        weights: Mapping[str, Array],
        samples: Samples,
        has_gates: bool = False,
        others: OtherWeights | None = None,
    ) -> None:
        """weights: what its integer weights stand for, by the name of a reduction. samples: errors are taken over the
        last quarter of them, at most MOST_SAMPLES. has_gates: whether trials may say which weights are rounded, for
        which reductions do twice the work. others: weights that trials may choose instead of those.
        """
        self.plan, self.weights = plan, frozenset(weights)
        graph = self.plan.graph
        self._chunks = _held_apart(graph, samples)
        self._batch = length_of(self._chunks[0])
        self._exact = _references(float_network(graph, samples), self._chunks, samples.executor)
        rounded = rounded_graph(self.plan, self._batch, weights, has_gates, others)
        self._others = rounded.others
        self.sites, self._corrected, self._gates = rounded.sites, rounded.corrected, rounded.gates
        self._by_name = {site.name: site for site in self.sites}
        self.outputs = tuple(symbol.name for symbol in measured(graph))
        self._grids: dict[tuple[Plan, str, int | None], Array] = {}
        self._shifts: dict[tuple[str, int], tuple[Array | None, Array]] = {}
        self._reference: tuple[Trial | None, dict[int, list[Array]]] = (None, {})
        names = [symbol.name for symbol in graph.inputs]
        self._parts, self._programs = parts_of(rounded, samples.runner, names)
        self._executor = samples.executor

    def errors(self, trials: Sequence[Trial], since: Trial | None = None) -> list[float]:
        """Of each trial the error energy of the outputs as a share of their signal's, the mean over the outputs.

        since: errors are those against the outputs of this trial, not against the float network's. An output without
        signal does not count.
        """
        return [mean_error(each) for each in self.output_errors(trials, since)]

    def output_errors(self, trials: Sequence[Trial], since: Trial | None = None) -> Array:
        """`errors` of each output, (trials, outputs); NaN of an output without signal."""
        places = [list(self._places(trial)) for trial in trials]
        wanted = sorted({place for each in places for place in each})
        references = dict(enumerate(self._exact)) if since is None else self._outputs(since, wanted)
        kept = {number for number, trial in enumerate(trials) if trial is self._reference[0]}
        found = self._run({n: trial for n, trial in enumerate(trials) if n not in kept}, places, references)
        for number in kept:
            for place, outputs in self._outputs(trials[number], places[number]).items():
                found[number, place] = energies_of(self._chunks[place], self._exact[place], references[place], outputs)
        totals = [np.zeros((2, len(self._exact[0]))) for _ in trials]
        for number, known in enumerate(places):
            for place in known:
                totals[number] += found[number, place]
        return np.array([_shares(total) for total in totals]).reshape(len(trials), len(self.outputs))

    def errors_alone(self, trials: Sequence[Trial], since: Trial) -> list[float]:
        """About what `errors` gives for trials that each differ from `since` in a few tensors only, in less time.

        Trials are run up to the part of the network behind which they differ no more, and there compared. Those with
        the same part then run as one to the outputs; see `shared_errors`. since: rounds no tensor that a trial rounds.
        """
        before = self._feeds(since)
        feeds = {n: self._feeds_beside(trial, since, before) for n, trial in enumerate(trials)}
        keys, parts = self._parts.keys(before), self._parts
        spans = {n: parts.span(parts.keys_beside(each, before, keys), keys) for n, each in feeds.items()}
        local = self._run_nearby(trials, RunNearby(self._parts, feeds, spans, before))
        groups: dict[int, list[int]] = {}
        for number, span in spans.items():
            groups.setdefault(span.stop, []).append(number)

        def errors(together: Sequence[Sequence[int]]) -> list[float]:
            return self.errors([_together([trials[n] for n in each]) for each in together], since)

        return shared_errors(list(groups.values()), local, errors)

    def _run_nearby(self, trials: Sequence[Trial], run: RunNearby) -> list[float]:
        """Of each trial the error behind its last part, over all of its chunks."""
        places = [set(self._places(trial)) for trial in trials]
        runs = -(-self._executor.width // max(len(set().union(*places)), 1))
        order = sorted(run.spans, key=lambda number: run.spans[number].start)
        asked = [
            OnChunk(place, tuple(each), self._chunks[place])
            for place in sorted(set().union(*places))
            for each in cut([number for number in order if place in places[number]], runs)
        ]
        found: dict[int, dict[int, Array]] = {}
        for place, energies in self._executor.in_order(run, asked, self._programs):
            for number, each in energies.items():
                found.setdefault(number, {})[place] = each
        totals = (sum(found[number][place] for place in sorted(found[number])) for number in range(len(trials)))
        return [float(np.nansum(_shares(np.asarray(total)))) for total in totals]

    def _run(
        self, trials: Mapping[int, Trial], places: Sequence[Sequence[int]], references: Mapping[int, Sequence[Array]]
    ) -> dict[tuple[int, int], Array]:
        """By trial and chunk the energies of signal and error, (2, outputs). places: of each trial its chunks."""
        first = next(iter(trials.values()), Trial())
        before = self._feeds(first)
        feeds = {number: self._feeds_beside(trial, first, before) for number, trial in trials.items()}
        known = self._parts.keys(before)
        keys = {number: self._parts.keys_beside(each, before, known) for number, each in feeds.items()}
        run = _Run(self._parts, feeds, keys)
        wanted = sorted({place for number in trials for place in places[number]})
        runs = -(-self._executor.width // max(len(wanted), 1))
        asked = [
            self._on_chunk(place, each, references)
            for place in wanted
            for each in shared_out([number for number in trials if place in places[number]], run.keys, runs)
        ]
        found: dict[tuple[int, int], Array] = {}
        for place, energies in self._executor.in_order(run, asked, self._programs):
            found |= {(number, place): each for number, each in energies.items()}
            give_back_freed()
        return found

    def _on_chunk(self, place: int, trials: tuple[int, ...], references: Mapping[int, Sequence[Array]]) -> OnChunk:
        return OnChunk(place, trials, self._chunks[place], self._exact[place], references[place])

    def sample_count(self, trial: Trial) -> int:
        """On how many samples a trial is run."""
        return sum(self._chunks[place].count for place in self._places(trial))

    def affordable(self, trials: int, operations: float) -> int:
        """On how many samples so many trials run within so many operations, at least 1."""
        return max(int(operations / max(network_operations(self.plan.graph) * trials, 1)), 1)

    def error(self, trial: Trial) -> float:
        """`errors` of one."""
        return self.errors([trial])[0]

    def _outputs(self, trial: Trial, places: Sequence[int]) -> Mapping[int, Sequence[Array]]:
        """The outputs of a trial on chunks, by place; those of the trial that was asked for last are kept."""
        if self._reference[0] is not trial:
            self._reference = trial, {}
        known = self._reference[1]
        missing = [place for place in places if place not in known]
        if missing:
            run, chunks = _RunWhole(self._parts, self._feeds(trial)), [self._chunks[place] for place in missing]
            known |= zip(missing, self._executor.in_order(run, chunks, self._programs), strict=True)
        return {place: known[place] for place in places}

    def _places(self, trial: Trial) -> Iterable[int]:
        done = 0
        for place, chunk in enumerate(self._chunks):
            if trial.samples is None or done < trial.samples:
                yield place
            done += chunk.count

    def _feeds(self, trial: Trial) -> dict[str, Array]:
        feeds = {
            site.name: self._grid(site, trial, trial.rounded is None or site.name in trial.rounded)
            for site in self.sites
        }
        feeds |= {
            symbol.name: self._shift(symbol, trial.corrections.get(name)) for name, symbol in self._corrected.items()
        }
        return feeds | self._gate_feeds(trial)

    def _feeds_beside(self, trial: Trial, other: Trial, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        """The feeds of a trial, of those of another one where they differ in nothing but what they round."""
        alike = trial.plan is other.plan and trial.corrections is other.corrections and trial.finer == other.finer
        chosen = (trial.weights, trial.instead) == (other.weights, other.instead)
        if trial.rounded is None or other.rounded is None or not (alike and chosen):
            return self._feeds(trial)
        changed = trial.rounded ^ other.rounded
        return {
            **feeds,
            **{site.name: self._grid(site, trial, site.name in trial.rounded) for site in self._sites_of(changed)},
        }

    def _sites_of(self, names: Iterable[str]) -> list[Site]:
        return [self._by_name[name] for name in names if name in self._by_name]

    def _shift(self, symbol: Symbol, given: Array | None) -> Array:
        """What is added for a correction; made once, since many trials have the same."""
        key = symbol.name, id(given)
        if key not in self._shifts:
            value = np.zeros(symbol.shape) if given is None else given.reshape(symbol.shape)
            self._shifts[key] = given, value.astype(np.float32)  # with the array, so that no other gets its id
        return self._shifts[key][1]

    def _grid(self, site: Site, trial: Trial, rounds: bool) -> Array:
        """The grid of a site, which is made once for a plan."""
        plan, finer = trial.plan or self.plan, trial.finer.get(site.name, 0)
        key = plan, site.name, finer if rounds else None
        if key not in self._grids:
            self._grids[key] = site.grid(plan, finer) if rounds else site.unrounded(plan)
        return self._grids[key]

    def _gate_feeds(self, trial: Trial) -> dict[str, Array]:
        if trial.weights is not None and not self._gates and self.weights:
            raise ValueError("a trial says which weights are rounded, but the simulation has no gates")
        return {
            symbol.name: np.full(symbol.shape, trial.weights is None or name in trial.weights, np.float32)
            for name, symbol in self._gates.items()
        } | {
            symbol.name: np.full(symbol.shape, trial.instead.get(name) == number, np.float32)
            for (name, number), symbol in self._others.items()
        }


def _together(trials: Sequence[Trial]) -> Trial:
    """Rounds what any of these rounds."""
    rounded = frozenset[str]().union(*(trial.rounded or () for trial in trials))
    return replace(trials[0], rounded=rounded)


def _held_apart(graph: Graph, samples: Samples) -> list[Chunk]:
    """The last quarter of the samples, at most MOST_SAMPLES."""
    single = sized(graph, 1)
    latest: deque[Chunk] = deque(maxlen=MOST_SAMPLES)
    count = 0
    for chunk in chunks(samples.batches, single.inputs, batch_of(single), samples.config.samples):
        latest.append(chunk)
        count += 1
    taken = list(latest)[-max(count // 4, 1) :]
    batch = max(min(MOST_BATCH, len(taken) // 4), 1)
    whole = sized(graph, batch)
    if batch_of(whole) == batch_of(single):
        return taken
    return list(chunks([chunk.arrays for chunk in taken], whole.inputs, batch, None))


def _references(network: FloatNetwork, held: Sequence[Chunk], executor: Executor = THREADS) -> list[list[Array]]:
    """What the float network gives for the chunks, of each tensor that is measured.

    The network is let go of, before another is compiled that takes as much memory.
    """
    graph, wanted = network.graph, measured(network.graph)
    given = network.values(wanted)
    inputs = sized(graph, given.batch).inputs
    again = list(chunks([_real_arrays(chunk) for chunk in held], inputs, given.batch, None))
    found = list(executor.in_order(partial(_values, given.places), again, (given.program,), given.at_once))
    network.release()
    if given.batch == length_of(held[0]):
        return found
    # Where the lengths differ the graph takes any, and all that depends on its inputs counts samples.
    varying, whole = graph.dependents(graph.inputs), []
    for symbol, values in zip(wanted, zip(*found, strict=True), strict=True):
        taken = [value[: chunk.count] for value, chunk in zip(values, again, strict=True)]
        whole.append(np.concatenate(taken) if symbol in varying else None)
    parts, done = [], 0
    for chunk in held:
        rows = done + np.minimum(np.arange(length_of(chunk)), chunk.count - 1)
        parts.append([first if every is None else every[rows] for first, every in zip(found[0], whole, strict=True)])
        done += chunk.count
    return parts


def _values(places: Sequence[int], chunk: Chunk, program: Program) -> list[Array]:
    return _copied(values_at(places, program, chunk.arrays))


def _real_arrays(chunk: Chunk) -> dict[str, Array]:
    return {name: array[: chunk.count] for name, array in chunk.arrays.items()}


def _copied(values: Iterable[Array]) -> list[Array]:
    return [np.array(value) for value in values]


def _shares(energies: Array) -> list[float]:
    return [error / signal if signal > 0 else np.nan for signal, error in energies.T]


def mean_error(errors: Array) -> float:
    """The mean over the outputs that have a signal; 0 where none has."""
    known = errors[~np.isnan(errors)]
    return float(known.mean()) if known.size else 0.0


def simulation_of(graph: Graph, observed: Calibration, config: QuantizationConfig, samples: Samples) -> Simulation:
    """The simulation of a prepared float graph, made once for the samples: of the first configuration that asks.

    A configuration that differs in the bits of activations has nearly the same weights, and trials say its plan.
    """
    if graph not in samples.simulations:
        planned, weights = planned_weights(graph, observed, config, samples)
        samples.simulations[graph] = Simulation(planned.plan, weights, samples)
    found: Simulation = samples.simulations[graph]
    return found


def planned_weights(
    graph: Graph, observed: Calibration, config: QuantizationConfig, samples: Samples
) -> tuple[PlannedGraph, RoundedWeights]:
    """The plan of a prepared float graph and its `rounded_weights`; those made last are kept with the samples."""
    if planned_before(graph, config, samples) is None:
        samples.weights = None  # before others are made, which take as much
        planned = plan_graph(graph, observed.ranges, config)
        if samples.rounder is None or samples.rounder.observed is not observed:
            samples.rounder = AsAsked(observed)
        weights = rounded_weights(planned, observed, samples.executor, samples.rounder)
        samples.weights = _key(graph, config), (planned, weights)
    found: tuple[PlannedGraph, RoundedWeights] = samples.weights[1]
    return found


def planned_before(graph: Graph, config: QuantizationConfig, samples: Samples) -> PlannedGraph | None:
    """The plan of just this that `planned_weights` made last, if it did."""
    is_known = samples.weights is not None and samples.weights[0] == _key(graph, config)
    planned: PlannedGraph | None = samples.weights[1][0] if is_known else None
    return planned


def _key(graph: Graph, config: QuantizationConfig) -> tuple[Graph, str]:
    return graph, config.model_dump_json()

"""Random integer graphs: whoever computes one that is proven gives the integers that it means, inside the proof."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from mrt.backend import TvmRunner
from mrt.backend.machine import Machine
from mrt.backend.schedule import serial
from mrt.certificate.certificate import derive
from mrt.compilation import Target
from mrt.errors import MRTError, UnsupportedOperatorError
from mrt.symbol.bounds import analyse_bounds
from mrt.symbol.states import states_of
from tests.backend.compiled import assert_same_values
from tests.backend.stand_ins import can_stand_in, standing_in
from tests.benchmarks.loaded import load_benchmark
from tests.export import c_programs, exported
from tests.fuzz.case import Outcome
from tests.fuzz.draw import Draw
from tests.fuzz.growers import grow
from tests.fuzz.growth import Grown, Growth

engines = load_benchmark("engines")
Engine = Callable[[Grown], None]
"""Raises where it does not give what `Graph.evaluate` does."""
MOST_OPERATORS = 9
UNDEFINED = ("-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all")
FURTHER = "alderlake", "cascadelake", "sapphirerapids"
"""CPUs with products of bytes in 256 bits, in 512 bits, and in tiles."""
CPUS = tuple((cpu, threads) for cpu in (*engines.LEVELS, *FURTHER) for threads in engines.THREADS)


def grown(draw: Draw, outcome: Outcome) -> Grown:
    """A graph of up to nine operators and what they needed; refusals are counted."""
    growth = Growth(draw)
    for _ in range(draw.integer(1, MOST_OPERATORS)):
        try:
            outcome.tried[grow(growth)] += 1
        except MRTError:
            outcome.refused["operator"] += 1
    outcome.refused.update(growth.refused)
    return growth.finish()


def fuzz_graph(draw: Draw, every_cpu: bool) -> Outcome:
    """Of the CPUs that code is made for two are drawn, or each is taken."""
    outcome = Outcome()
    found = grown(draw, outcome)
    chosen = {CPUS[i] for i in draw.random.permutation(len(CPUS))[:2]}
    if draw.chance(0.5):
        serial.WORTH_THREADS = 0  # in this process, which is the case's own: threads share every loop that they may
    is_told = draw.chance(0.7)
    outcome.finding = outside(found)
    for cpu, threads in CPUS:
        if every_cpu or (cpu, threads) in chosen:
            if why := unable(cpu):
                outcome.refused[f"{cpu}: {why}"] += 1
                continue
            target = {"mcpu": cpu, "threads": threads}
            compare_engine(
                f"{cpu}, {threads} threads", partial(compiled, target=target, is_told=is_told), found, outcome
            )
    compare_engine("ONNX Runtime", onnx_runtime, found, outcome)
    # States are kept by an instance in C, and are no arguments: test_streams.py runs them as streams.
    if shutil.which(engines.C_COMPILER) and not states_of(found.graph):
        compare_engine("C", c, found, outcome)
    return outcome


def unable(cpu: str) -> str:
    """Why code for a CPU does not run here, or ""."""
    if can_stand_in():
        return ""
    return engines.lacking(cpu) if cpu in engines.LEVELS else "this machine has no AVX2, or no C compiler"


def compare_engine(name: str, engine: Engine, found: Grown, outcome: Outcome) -> None:
    outcome.tried[name] += 1
    try:
        engine(found)
    except UnsupportedOperatorError:  # a format need not have every operator
        outcome.refused[name] += 1
    except Exception as error:
        said = f"{type(error).__name__}: {error}".strip()[:1200]
        outcome.finding = outcome.finding or f"{name}: {said}\nranges {dict(found.ranges)}\n{found.graph}"


def outside(found: Grown) -> str:
    """What leaves its proven interval, or whether the proof is refused though every operator was bounded; or ""."""
    try:
        facts, bounds = derive(found.graph, found.intervals), analyse_bounds(found.graph, found.intervals)
    except MRTError as error:
        return f"derive: {error}\n{found.graph}"
    for feeds in found.feeds:
        for symbol, value in found.graph.walk(feeds):
            fact, held = facts[symbol.name], bounds[symbol.name]
            inside = bool(((held.lo <= value) & (value <= held.hi)).all())
            if not inside or value.min() < fact.lo or value.max() > fact.hi:
                return f"{symbol} holds [{value.min()}, {value.max()}], {fact} is proven\n{found.graph}"
    return ""


def compiled(found: Grown, target: Target, is_told: bool = True) -> None:
    """is_told: whether the compiler knows the ranges of inputs, or their dtypes only."""
    with standing_in(Machine.of(target)):
        run = TvmRunner(target, found.intervals if is_told else {}).prepare(found.graph)
    for feeds in found.feeds:
        assert_same_values(found.graph, run(feeds), found.graph.evaluate(feeds))


def onnx_runtime(found: Grown) -> None:
    graph = found.graph
    exported.assert_same(graph, exported.exported(graph, exported.facts(graph, found.ranges)), found.feeds)


def c(found: Grown) -> None:
    with tempfile.TemporaryDirectory() as folder:
        facts = exported.facts(found.graph, found.ranges)
        programs = c_programs.Programs.of([(found.graph, facts)], Path(folder), *UNDEFINED)
        programs.assert_same(0, found.feeds)

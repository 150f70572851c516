"""Where the time of the compiled network goes: the latency of the module, and the seconds of each of its functions."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from mrt.backend import ONE_THREAD
from mrt.backend.explain import described_call
from mrt.backend.machine import Machine
from mrt.backend.peak import Peak, peak_of
from mrt.backend.profile import MeasuredCall, Profile, profile
from mrt.backend.rewrites.known_bounds import bounds_of_inputs
from mrt.report.facts import Function, Latency, MachineFacts, MemoryPlan, Time
from mrt.report.measure.numbers import rounded
from mrt.report.measure.proven import IntegerLayers
from mrt.report.measure.subject import Subject
from mrt.runtime import Module
from mrt.symbol import Array
from mrt.symbol.rebatch import batch_of
from mrt.workers import cores

SECONDS, LEAST_RUNS, MOST_RUNS = 0.5, 5, 2000
"""How long the module is run, and how often at least and at most."""
PROFILED_SECONDS, PROFILED_RUNS = 0.5, 20
MOST_OF_THE_RUN = 0.2
"""Functions are measured where compiling them once more takes no more of the run's time than this, or FEW_SECONDS."""
FEW_SECONDS = 15.0


def latency_of(subject: Subject) -> Latency:
    """The module's seconds for as many samples as it takes at once, their integers by chance.

    Raises ValueError where there is no module, or one that this machine does not run.
    """
    module = subject.module
    if module is None:
        raise ValueError("the network was not compiled for this machine")
    feeds = _integers(module)
    module.run_integer(feeds)
    seconds: list[float] = []
    ends = time.perf_counter() + SECONDS
    while len(seconds) < LEAST_RUNS or (time.perf_counter() < ends and len(seconds) < MOST_RUNS):
        began = time.perf_counter()
        module.run_integer(feeds)
        seconds.append(time.perf_counter() - began)
    low, middle, high = np.quantile(seconds, [0.1, 0.5, 0.9])
    return Latency(
        integer=rounded(middle),
        low=rounded(low),
        high=rounded(high),
        float_network=None,
        batch=_samples(module),
        threads=module.workers if module.workers > 1 else cores(),
        runs=len(seconds),
    )


def _samples(module: Module) -> int:
    return module.batch * module.workers


def _integers(module: Module) -> dict[str, Array]:
    random = np.random.default_rng(0)
    return {
        entry.name: random.integers(
            entry.lo, entry.hi, (_samples(module), *entry.shape[1:]), dtype=np.int64, endpoint=True
        ).astype(entry.dtype)
        for entry in module.inputs
    }


def time_of(subject: Subject, layers: IntegerLayers, latency: Latency | None) -> Time:
    """The seconds of each function, for one sample in one thread.

    Raises ValueError where measuring would take too much of the run's time.
    """
    if latency is None:
        raise ValueError("the network was not compiled for this machine")
    spent, total = subject.seconds.get("compile", 0.0), sum(subject.seconds.values())
    if spent > max(MOST_OF_THE_RUN * total, FEW_SECONDS):
        raise ValueError(f"compiling the functions once more would take {spent:.0f} s, too much of the run's time")
    model, machine = subject.model.rebatched(1), Machine.of(ONE_THREAD)
    batch = batch_of(model.graph)
    runs = int(np.clip(PROFILED_SECONDS * latency.batch / max(latency.integer * batch, 1e-6), 3, PROFILED_RUNS))
    peak = peak_of(machine)
    found = profile(model.graph, bounds_of_inputs(model.inputs), machine, runs, peak)
    total = sum(call.seconds for call in found.calls)
    functions = [
        _function(place, call, found, machine, layers.place_of, total) for place, call in enumerate(found.calls)
    ]
    parameters = sum(value.nbytes for value in model.graph.parameters.values())
    return Time(
        functions=functions,
        seconds=rounded(total),
        runs=runs + 1,
        batch=batch,
        threads=1,
        machine=_machine(machine, peak, found),
        memory=MemoryPlan(arena=found.workspace, parameters=parameters, separate=found.separate),
    )


def _function(
    place: int, measured: MeasuredCall, found: Profile, machine: Machine, place_of: Mapping[str, int], total: float
) -> Function:
    told = described_call(measured.call, found.plan.graph, machine)
    origins = [symbol.name for symbol in measured.symbols] or list(told.outputs)
    computed = {symbol.name: symbol.origin for symbol in found.plan.graph.symbols}
    places = [place_of.get(name, place_of.get(computed.get(name, ""))) for name in (*told.outputs, *origins)]
    layers = [layer for layer in dict.fromkeys(places) if layer is not None]
    return Function(
        place=place,
        outputs=list(told.outputs),
        operators=list(told.operators),
        layer=layers[0] if layers else None,
        layers=sorted(layers),
        seconds=rounded(measured.seconds),
        share=rounded(measured.seconds / total) if total else None,
        products=measured.products,
        rate=rounded(measured.products / measured.seconds) if measured.products else None,
        of_peak=None if measured.at_peak is None else rounded(measured.at_peak / measured.seconds),
        kernel=told.products,
        instruction=told.instruction,
        memory=list(told.memory),
        ends=told.ends,
        without=[str(refusal) for refusal in told.refusals],
    )


def _machine(machine: Machine, peak: Peak | None, found: Profile) -> MachineFacts:
    """The peak is that at which the functions were measured, whose clock is theirs."""
    at_peak = [call for call in found.calls if call.at_peak]
    seconds = sum(call.at_peak or 0.0 for call in at_peak)
    return MachineFacts(
        cpu=_cpu_name(),
        target=str(machine.target.export().get("mcpu", "generic")),
        cores=cores(),
        peak=rounded(sum(call.products for call in at_peak) / seconds) if seconds else None,
        peak_instruction="" if peak is None else peak.instruction,
    )


def _cpu_name() -> str:
    """What Linux calls the CPU; "" elsewhere."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "")
    except OSError:
        return ""


def layer_seconds(found: Time) -> dict[int, float]:
    """The seconds of the functions by the layer that each belongs to."""
    seconds: dict[int, float] = {}
    for function in found.functions:
        if function.layer is not None and function.seconds is not None:
            seconds[function.layer] = seconds.get(function.layer, 0.0) + function.seconds
    return seconds

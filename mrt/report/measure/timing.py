"""Where the time of the compiled network goes: the seconds of each of its functions, and the memory of a run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mrt.backend import ONE_THREAD
from mrt.backend.explain import described_call
from mrt.backend.machine import Machine
from mrt.backend.peak import Peak, peak_of
from mrt.backend.profile import MeasuredCall, Profile, profile
from mrt.backend.rewrites.known_bounds import bounds_of_inputs
from mrt.cpu_flags import cpuinfo
from mrt.report.facts import Function, Latency, MachineFacts, Time
from mrt.report.measure.latency import most_seconds
from mrt.report.measure.memory import memory_facts
from mrt.report.measure.numbers import rounded
from mrt.report.measure.proven import IntegerLayers
from mrt.report.measure.subject import Subject
from mrt.symbol.rebatch import batch_of
from mrt.workers import cores

PROFILED_SECONDS, PROFILED_RUNS = 0.5, 20


def profiled_share(subject: Subject) -> float:
    """How many of the functions can be compiled once more within the time that a report may take."""
    return min(most_seconds(subject) / max(subject.seconds.get("compile", 0.0), 1e-3), 1.0)


def time_of(subject: Subject, layers: IntegerLayers, latency: Latency | None) -> Time:
    """The seconds of the functions, for one sample in one thread; where compiling all once more would take too much of
    the run's time, of those with most multiplications.

    Raises ValueError where there is no module that this machine runs.
    """
    if latency is None:
        raise ValueError("the network was not compiled for this machine")
    model, machine = subject.model.rebatched(1), Machine.of(ONE_THREAD)
    batch = batch_of(model.graph)
    runs = int(np.clip(PROFILED_SECONDS * latency.batch / max(latency.integer * batch, 1e-6), 3, PROFILED_RUNS))
    peak = peak_of(machine)
    found = profile(model.graph, bounds_of_inputs(model.inputs), machine, runs, peak, profiled_share(subject))
    total = sum(call.seconds or 0.0 for call in found.calls)
    functions = [
        _function(place, call, found, machine, layers.place_of, total) for place, call in enumerate(found.calls)
    ]
    return Time(
        functions=functions,
        seconds=rounded(total),
        runs=runs + 1,
        batch=batch,
        threads=1,
        machine=_machine(machine, peak, found),
        memory=memory_facts(found.memory, model.graph, layers.place_of),
    )


def _function(
    place: int, measured: MeasuredCall, found: Profile, machine: Machine, place_of: Mapping[str, int], total: float
) -> Function:
    told = described_call(measured.call, found.plan.graph, machine)
    origins = [symbol.name for symbol in measured.symbols] or list(told.outputs)
    computed = {symbol.name: symbol.origin for symbol in found.plan.graph.symbols}
    places = [place_of.get(name, place_of.get(computed.get(name, ""))) for name in (*told.outputs, *origins)]
    layers = [layer for layer in dict.fromkeys(places) if layer is not None]
    seconds = measured.seconds
    return Function(
        place=place,
        outputs=list(told.outputs),
        operators=list(told.operators),
        layer=layers[0] if layers else None,
        layers=sorted(layers),
        seconds=None if seconds is None else rounded(seconds),
        share=rounded(seconds / total) if seconds and total else None,
        products=measured.products,
        rate=rounded(measured.products / seconds) if seconds and measured.products else None,
        of_peak=rounded(measured.at_peak / seconds) if seconds and measured.at_peak is not None else None,
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
    lines = cpuinfo().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


def layer_seconds(found: Time) -> dict[int, float]:
    """The seconds of the functions by the layer that each belongs to."""
    seconds: dict[int, float] = {}
    for function in found.functions:
        if function.layer is not None and function.seconds is not None:
            seconds[function.layer] = seconds.get(function.layer, 0.0) + function.seconds
    return seconds


def partial_reason(found: Time, subject: Subject) -> str | None:
    """Why some functions have no seconds; None where all have."""
    known = sum(function.seconds is not None for function in found.functions)
    if known == len(found.functions):
        return None
    spent = subject.seconds.get("compile", 0.0)
    return (
        f"{known} of {len(found.functions)} were measured, those with most multiplications; shares are of these. "
        f"Compiling all once more would take {spent:.0f} s, too much of the run's time"
    )

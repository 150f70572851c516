"""Reports of made-up networks, of any size and with any names, every part of them filled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mrt.report.facts import (
    Accuracy,
    Bits,
    Channel,
    Choice,
    Choices,
    Errors,
    ErrorTotals,
    Form,
    Function,
    Headroom,
    Histogram,
    Latency,
    Layer,
    LayerSqnr,
    MachineFacts,
    MemoryPlan,
    ModelFacts,
    Note,
    Output,
    Part,
    PlannedTensor,
    Port,
    Proof,
    ProvenTensor,
    Report,
    Rescaling,
    Shares,
    Sizes,
    Time,
    Trial,
    Trials,
    Values,
    Weights,
)

HOSTILE = '</script><img src=x onerror="window.hacked=1">\'`|{{ 7 * 7 }}'
"""A name that would do something wherever it is not escaped."""


CHOSEN = 5
"""Layers that have choices."""


def names(count: int) -> list[str]:
    return [f"layer{i}" for i in range(count)]


def made_report(layers: Sequence[str], channels: int = 48, **changes: Any) -> Report:
    """A report of layers with these names, the first of them the input; `changes` replace its fields."""
    random = np.random.default_rng(len(layers))
    made = [_layer(i, name, channels, random) for i, name in enumerate(layers)]
    functions = [_function(layer) for layer in made]
    tensors = [found for layer in made for found in (layer.headroom.sum, layer.headroom.product) if found]
    alone = sum(layer.shares.alone for layer in made if layer.shares)
    digest = "0123456789abcdef" * 4
    port = Port(name="data", shape=[1, 3, 8, 8], dtype="int8", scale=0.01, zero_point=3, lo=-128, hi=127)
    report = Report(
        format_version=1,
        model=ModelFacts(
            name="network",
            file="network.onnx",
            version="1.2.3",
            digest=digest,
            files={"graph.json": digest},
            inputs=[port],
            outputs=[port],
            states=[],
            has_postprocess=False,
            parameters=12345,
            operators={"Convolution": len(made)},
        ),
        settings={"quantize": {"activation": {"bits": 8}, "weight": {"bits": 4}}},
        seconds={"prepare": 0.1, "calibrate": 2.5, "evaluate": 30.0},
        samples=32,
        data_source="data.calibration",
        proof=Proof(
            sentence="Every tensor fits 32 bits.",
            max_bits=32,
            tensors=4 * len(made),
            operators=3 * len(made),
            spare_bits=9.5,
            sums=len(made),
            products=len(made),
            full_products=1,
        ),
        sizes=Sizes(float_parameters=49380, integer_parameters=12345, module=70000),
        accuracy=Accuracy(
            samples=1000,
            float_top1=0.9,
            integer_top1=0.89,
            lost=20,
            won=10,
            difference=-0.01,
            standard_error=0.0055,
            agreement=0.95,
            sqnr=21.5,
            exact_samples=64,
        ),
        outputs=[made_output("boxes", 29.0), made_output("classes", 31.0)],
        error=ErrorTotals(
            samples=64, outputs=["boxes", "classes"], whole=[0.01, 0.02], alone=alone, source="data.calibration"
        ),
        layers=made,
        detailed=len(made),
        tensors=tensors,
        tensor_count=4 * len(made),
        latency=Latency(integer=3e-4, low=2.9e-4, high=3.3e-4, float_network=1e-3, batch=1, threads=1, runs=200),
        time=Time(
            functions=functions,
            seconds=sum(each.seconds or 0.0 for each in functions),
            runs=50,
            machine=MachineFacts(
                cpu="a CPU", target="native", cores=2, peak=4e11, peak_instruction="avx512vnni vpdpbusd"
            ),
            memory=_memory(layers),
        ),
        trials=Trials(metric="top1, %", objective="latency", trials=[_trial(i) for i in range(15)]),
        notes=[_note(kind, layers) for kind in ("fine", "done", "internal", "try", "warning")],
        missing={},
        choices=Choices(
            samples=32,
            source="data.calibration",
            sqnr=21.5,
            layers=[layer.id for layer in made if layer.choices],
            left_out=[f"only {CHOSEN} of the 7 worst layers, because of time"],
        ),
    )
    return report.model_copy(update=changes)


def _memory(layers: Sequence[str]) -> MemoryPlan:
    """Each layer's tensor is needed by the next function too, and they lie below and above in turns."""
    tensors = [
        PlannedTensor(
            names=[name],
            layer=i,
            dtype="int8",
            shape=[1, 4, 8, 8],
            bytes=256,
            offset=256 * (i % 2),
            first=i,
            last=min(i + 1, len(layers) - 1),
            is_output=False,
        )
        for i, name in enumerate(layers[:300])
    ]
    alive = [256 * sum(each.first <= i <= each.last for each in tensors) for i in range(min(len(layers), 4000))]
    return MemoryPlan(
        arena=512,
        parameters=12345,
        separate=256 * len(layers),
        outputs=64,
        alive=alive,
        peak=max(alive, default=0),
        peak_at=alive.index(max(alive)) if alive else None,
        tensors=tensors,
        tensor_count=len(layers),
    )


def made_output(name: str, sqnr: float | None) -> Output:
    """An output of two parts, one of them 20 dB worse."""
    parts = [
        Part(name=f"{name} {i}", axis=1, start=4 * i, stop=4 * i + 4, how="ranges", sqnr=each, reach=640.0 / (1 + i))
        for i, each in enumerate((sqnr, None if sqnr is None else sqnr - 20))
    ]
    return Output(name=name, shape=[1, 8, 100], samples=64, sqnr=sqnr, parts=parts)


def _histogram(values: np.ndarray, bins: int) -> Histogram:
    counts, edges = np.histogram(values, bins)
    return Histogram(lo=float(edges[0]), hi=float(edges[-1]), counts=counts.tolist())


def _choices(name: str) -> list[Choice]:
    return [
        Choice(
            what=what,
            name=name,
            option=option,
            code=f"{name}: {{activation: {{bits: 16}}}}",
            sqnr=21.5 + gain,
            gain=gain,
            operations=0.03 if gain > 0 else 0.0,
            parameter_bytes=4096,
            tensor_bytes=256,
            seconds=1e-5,
        )
        for what, option, gain in (
            ("output", "16 bits", 3.0),
            ("weights", "scales for each 16 input channels", 0.04),
            ("input", "16 bits", -0.2),
        )
    ]


def _tensor(name: str, layer: int, bits: float, operator: str) -> ProvenTensor:
    most = int(2 ** (bits - 1)) - 1
    return ProvenTensor(
        name=name,
        operator=operator,
        dtype="int32",
        lo=-most,
        hi=most,
        bits=bits,
        rule=f"{operator} of |x| <= 127",
        seen=[-most // 3, most // 2],
        seen_bits=bits - 1,
        layer=layer,
    )


def _layer(i: int, name: str, channels: int, random: np.random.Generator) -> Layer:
    values = random.normal(0, 1, (channels, 200))
    quantiles = np.quantile(values, [0, 0.01, 0.25, 0.5, 0.75, 0.99, 1], axis=1).T
    weights = random.normal(0, 1, (channels, 64))
    largest = np.abs(weights).max(axis=1)
    share = float(random.exponential(0.1))
    is_input = i == 0
    return Layer(
        id=i,
        name=name,
        head=name,
        symbols=[name, f"{name}_relu"],
        kind="input" if is_input else "convolution",
        operator="input" if is_input else "Convolution",
        detail="" if is_input else "3×3 /2",
        channels=str(channels),
        followers=[] if is_input else ["relu"],
        shape=[1, channels, 8, 8],
        reads=[] if is_input else [i - 1],
        form=Form(
            tensor=f"{name}_int8",
            dtype="int8",
            scale=0.025,
            scale_most=0.025,
            scale_count=1,
            zero_point=-5,
            lo=-128,
            hi=127,
            real_lo=-3.075,
            real_hi=3.3,
            calibrated=[-3.0, 3.3],
        ),
        source=f"/model/{name}",
        bits=[Bits(what="activation", asked=8, chosen=8, why="as configured for all")],
        shares=Shares(
            output=share,
            weights=None if is_input else share / 3,
            alone=share * (1 if is_input else 4 / 3),
            by_output=[share, None],
        ),
        sqnr=LayerSqnr(isolated=45.0 + i % 7, cumulative=40.0 - i % 11, worst_steps=2.5),
        headroom=Headroom(
            sum=_tensor(f"{name}_sum", i, 20.0 + i % 5, "Convolution"),
            product=None if is_input else _tensor(f"{name}_scaled", i, 31.9, "broadcast_mul"),
        ),
        rescaling=None if is_input else Rescaling(multipliers=[100, 20000], shifts=[7, 19]),
        correction=None if is_input else [-0.01, 0.02],
        bytes=1000 * i,
        products=100_000 * i,
        seconds=1e-5 * (1 + i % 4),
        time_share=0.1,
        values=Values(
            count=values.size,
            lo=float(values.min()),
            hi=float(values.max()),
            zeros=0.25,
            clipped=0.001,
            histogram=_histogram(values, 96),
            channel_count=2 * channels,
            channels=[Channel(channel=2 * c, spread=quantiles[c].tolist()) for c in range(channels)],
            errors=Errors(histogram=_histogram(random.normal(0, 0.4, 2000), 61), rms=0.4, mean=0.01),
        ),
        weights=None
        if is_input
        else Weights(
            shape=[channels, 64, 1, 1],
            sqnr=44.0,
            zeros=0.02,
            levels=_histogram(weights * 30, 64),
            channel_count=channels,
            channels=list(range(channels)),
            scales=[0.01] * channels,
            largest=largest.tolist(),
            histograms=[np.histogram(w, 16, (-m, m))[0].tolist() for w, m in zip(weights, largest, strict=True)],
        ),
        advice="16 bits would save most of this error",
        choices=_choices(name) if i < CHOSEN else None,
    )


def _function(layer: Layer) -> Function:
    seconds = layer.seconds or 0.0
    return Function(
        place=layer.id,
        outputs=[layer.name],
        operators=["Convolution", "clip"],
        layer=layer.id if layer.id % 5 else None,
        layers=[layer.id],
        seconds=seconds,
        share=0.1,
        products=layer.products,
        rate=layer.products / seconds if layer.products else None,
        of_peak=0.3 if layer.products else None,
        kernel="by lanes",
        instruction="vpdpbusd",
        memory=["16 channels inside"],
        ends="its result is an output",
        without=[],
    )


def _trial(i: int) -> Trial:
    return Trial(
        name=str(i),
        changes=[f"layer{i}: 16 bits"] if i else [],
        metric=90.0 + i / 10,
        seconds=3e-4 + i * 1e-5,
        bytes=12345 + i,
        bits=8.0,
        is_best=i % 3 == 0,
        cost=1.0 + i / 20,
    )


def _note(kind: Any, layers: Sequence[str]) -> Note:
    first = layers[0] if layers else ""
    return Note(kind=kind, title=f"A note that is {kind}", text=f"Of {first}.", code=f"key: {first}", layers=[0])

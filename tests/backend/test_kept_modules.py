"""Modules that are kept as a whole: the same file without lowering anything, and another one wherever code differs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import op
from networks import IntegerNetwork

from mrt.backend import KernelCache, build, compile_model
from mrt.backend.job import Job
from mrt.backend.kept_modules import MOST_OF_CACHE, KeptModule, ModuleCode
from mrt.backend.tuning.tuner import Tuner
from mrt.errors import ModelFileError
from mrt.progress import silent
from mrt.runtime import Module
from mrt.symbol import Graph, GraphBuilder, TensorType
from mrt.symbol.operators.activation import Relu

TARGET = {"mcpu": "native", "threads": 1}
CODE = ModuleCode(((1, 3), (4, 2)), [b"kernel\n", b"", b"\n\0weights"])


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    (tmp_path / "cache").mkdir(mode=0o700)
    return KernelCache(tmp_path / "cache")


def tail(shapes: list[tuple[int, ...]], name: str = "softmax") -> Graph:
    builder = GraphBuilder()
    fed = [builder.input(f"real{place}", TensorType(shape)) for place, shape in enumerate(shapes)]
    return builder.graph([builder.apply(op(name), [fed[0]]), *fed[1:]])


class Parts:
    """The arguments of `compile_model`."""

    def __init__(self, batch: int = 1, seed: int = 0) -> None:
        self.network = IntegerNetwork(batch, seed)
        shapes = [entry.shape for entry in self.network.outputs]
        self.given: dict[str, Any] = {
            "graph": self.network.graph,
            "inputs": self.network.inputs,
            "outputs": self.network.outputs,
            "postprocess": tail(shapes),
            "digest": "0" * 64,
            "target": TARGET,
        }

    def module(self, cache: KernelCache | None, tuner: Tuner | None = None) -> Module:
        return compile_model(**self.given, cache=cache, tuner=tuner)

    def key(self, cache: KernelCache, **changes: Any) -> str:
        kept = KeptModule.of(Job.of(**{**self.given, **changes}), cache)
        assert kept is not None
        return kept.key


def never(*_: Any) -> Any:
    raise AssertionError("nothing is to be made again")


@pytest.mark.parametrize("batch", [1, 4])
def test_the_second_module_is_the_same_file_and_nothing_is_lowered(
    batch: int, cache: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts(batch)
    plain, first = parts.module(None), parts.module(cache)
    monkeypatch.setattr(build, "lower_model", never)
    second = parts.module(cache)
    assert first.files == plain.files
    assert second.files == plain.files
    x = parts.network.images(batch)
    for found, wanted in zip(second(x), plain(x), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_what_is_damaged_or_gone_is_made_anew(cache: KernelCache) -> None:
    parts = Parts()
    files = parts.module(cache).files
    path = cache.folder / parts.key(cache)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert parts.module(cache).files == files
    assert path.read_bytes() == content
    path.unlink()
    assert parts.module(cache).files == files
    assert path.read_bytes() == content


def test_all_that_code_depends_on_is_in_the_key(cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts()
    network, shapes = parts.network, [entry.shape for entry in parts.network.outputs]
    other_scale = tuple(replace(entry, scale=0.25) for entry in network.inputs)
    changes: list[dict[str, Any]] = [
        {},
        {"graph": IntegerNetwork(1, seed=5).graph},
        {"postprocess": None},
        {"postprocess": tail(shapes, "sigmoid")},
        {"inputs": other_scale},
        {"digest": "1" * 64},
        {"target": {"mcpu": "native", "threads": 2}},
        {"target": {"mcpu": "nehalem", "threads": 1}},
        {"workers": 2},
        {"output_names": ["a", "b"]},
    ]
    keys = [parts.key(cache, **each) for each in changes] + [Parts(2).key(cache)]
    assert len(set(keys)) == len(keys)
    assert keys[0] == Parts().key(cache)
    monkeypatch.setattr("mrt.backend.link.kernel_objects._toolchain", lambda: "of tomorrow")
    assert parts.key(cache) not in keys
    monkeypatch.undo()
    monkeypatch.setattr(Job, "near", 1)
    assert parts.key(cache) not in keys


def test_what_is_tuned_is_lowered_always(cache: KernelCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeptModule, "of", never)
    with pytest.raises(ModelFileError, match="holds no database of tilings"):
        Parts().module(cache, Tuner(tmp_path / "tilings", 0, silent()))


def test_code_comes_back_as_it_was_put(cache: KernelCache) -> None:
    kept = KeptModule(cache, "a" * 64)
    assert kept.get() is None
    kept.put(CODE)
    found = kept.get()
    assert found is not None
    assert (found.stretches, list(found.objects)) == (CODE.stretches, CODE.objects)


def test_a_module_that_would_push_out_all_others_is_not_kept(cache: KernelCache) -> None:
    most = int(MOST_OF_CACHE * 4096)
    small = KeptModule(KernelCache(cache.folder, 4096), "f" * 64)
    small.put(ModuleCode((), [bytes(most + 1)]))
    assert small.get() is None
    small.put(ModuleCode((), [bytes(most)]))
    assert small.get() is not None


def test_operators_of_other_packages_are_compiled_anew(cache: KernelCache) -> None:
    foreign = type("Foreign", (Relu,), {"__module__": "a_package"})
    parts = Parts()
    shapes = [entry.shape for entry in parts.network.outputs]
    builder = GraphBuilder()
    fed = [builder.input(f"real{place}", TensorType(shape)) for place, shape in enumerate(shapes)]
    graph = builder.graph([builder.apply(foreign(), [fed[0]]), fed[1]])
    assert KeptModule.of(Job.of(**{**parts.given, "postprocess": graph}), cache) is None

"""Compiled modules and their records: what is loaded is what was checked, and what does not fit is refused."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

from mrt.backend import compile_model
from mrt.errors import CompilationError, ModelFileError
from mrt.module_record import MODULE_LIMIT, RECORD_LIMIT, ModuleRecord, module_in, record_path
from mrt.runtime import Module, load_module
from mrt.symbol import GraphBuilder, TensorType, find_operator
from mrt.symbol.quantized_tensor import TensorQuantization

X = np.arange(-6, 6, dtype=np.int8).reshape(2, 6)
Change = Callable[[dict[str, Any]], object]
DIGESTS = {3: "a" * 64, -5: "b" * 64}


def compiled(factor: int) -> Module:
    """Of a network that multiplies by `factor`."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((2, 6), "int8"))
    weight = builder.parameter("w", np.array([[factor]], np.int8))
    graph = builder.graph([builder.apply(find_operator("broadcast_mul")(), [x, weight], "y")])
    entries = [TensorQuantization(s.name, s.shape, s.dtype, 1.0, 0, -128, 127) for s in (x, *graph.outputs)]
    return compile_model(graph, entries[:1], entries[1:], None, DIGESTS[factor], {"threads": 1})


@pytest.fixture(scope="module")
def first() -> Module:
    return compiled(3)


@pytest.fixture(scope="module")
def second() -> Module:
    return compiled(-5)


@pytest.fixture
def path(first: Module, tmp_path: Path) -> Path:
    """The first module, saved."""
    first.save(tmp_path / "model.so")
    return tmp_path / "model.so"


def check(module: Module, factor: int) -> None:
    np.testing.assert_array_equal(module.run_integer(X), X.astype(int) * factor)
    assert module.digest == DIGESTS[factor]


def in_place(module: Module, path: Path) -> None:
    """Written into the files that are there, as `cp` does."""
    other = path.with_name("other.so")
    module.save(other)
    for source, target in ((other, path), (record_path(other), record_path(path))):
        target.write_bytes(source.read_bytes())


@pytest.mark.parametrize("replace", [Module.save, in_place])
def test_a_file_that_was_replaced_is_loaded_anew(
    second: Module, path: Path, replace: Callable[[Module, Path], None]
) -> None:
    """The module that was loaded before stays what it was, also where its first call comes later."""
    old, unused = load_module(path), load_module(path)
    check(old, 3)
    replace(second, path)
    new = load_module(path)
    check(new, -5)
    check(old, 3)
    check(unused, 3)
    path.unlink()
    for module, factor in ((old, 3), (new, -5), (old, 3)):
        check(module, factor)
    old.save(path)
    check(load_module(path), 3)


def test_what_is_loaded_is_what_was_checked(second: Module, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever replaces the file between check and load comes too late."""
    load = tvm.runtime.load_module

    def late(name: str) -> Any:
        in_place(second, path)
        return load(name)

    monkeypatch.setattr("tvm.runtime.load_module", late)
    check(load_module(path), 3)


def test_nothing_is_left_in_the_folder_of_temporary_files(
    first: Module, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    check(load_module(path), 3)
    check(compiled(3), 3)
    assert list(temporary.iterdir()) == []
    unlinked = compiled(3)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(CompilationError, match=r"cannot be linked: No such file.*TMPDIR"):
        unlinked.save(path)
    with pytest.raises(CompilationError, match=r"model\.so.*cannot be loaded: No such file.*TMPDIR"):
        load_module(path)


def test_a_module_of_another_machine_is_named(path: Path) -> None:
    """The number of the machine stands at byte 18; 183 is AArch64's."""
    record = ModuleRecord.from_json(record_path(path).read_bytes())
    content = bytearray(path.read_bytes())
    content[18] = 183 if content[18] != 183 else 62
    path.write_bytes(content)
    target = record.made_from.target.model_copy(update={"mtriple": "another-linux"})
    made_from = record.made_from.model_copy(update={"target": target})
    record_path(path).write_bytes(ModuleRecord.of(bytes(content), made_from).to_json())
    with pytest.raises(
        CompilationError,
        match=r"model\.so \(compiled for another-linux\): the module is compiled for aarch64, this machine is",
    ):
        load_module(path)


def test_a_module_may_be_called_anything(first: Module, tmp_path: Path) -> None:
    """TVM would link a file whose name ends with .o and unpack one that ends with .tar."""
    for name in ("m.o", "m.tar", "m"):
        first.save(tmp_path / name)
        check(load_module(tmp_path / name), 3)
    assert sorted(os.listdir(tmp_path)) == ["m", "m.json", "m.o", "m.o.json", "m.tar", "m.tar.json"]


def test_the_record_says_what_was_compiled_and_how(first: Module, path: Path) -> None:
    data = json.loads(record_path(path).read_text())
    content = path.read_bytes()
    assert (data["sha256"], data["size"]) == (sha256(content).hexdigest(), len(content))
    made = data["made_from"]
    assert (made["model"], made["batch"], made["workers"]) == (DIGESTS[3], 2, 1)
    assert made["versions"]["tvm"] == tvm.__version__
    assert made["target"]["threads"] == 1
    assert made["target"]["mcpu"] == tvm.target.codegen.llvm_get_system_cpu()
    assert first.record == load_module(path).record == ModuleRecord.from_json(record_path(path).read_bytes())


def test_the_recorded_target_makes_the_same_code() -> None:
    """The names that `native` stood for are those of the same CPU."""
    from mrt.backend.machine import Machine, resolved

    for target in ("native", {"mcpu": "x86-64-v3"}, {"features": ["-avx512f"]}, {"mtriple": "aarch64-linux-gnu"}):
        named = resolved(target)
        assert named.mcpu != "native" and named.mtriple and named.threads
        a, b = Machine.of(target), Machine.of(named)
        assert (a.vector_bits, a.registers, a.features, a.has_tiles) == (
            b.vector_bits, b.registers, b.features, b.has_tiles
        )  # fmt: skip
        assert resolved(named) == named


def test_a_module_of_another_model_is_refused(path: Path) -> None:
    check(load_module(path, DIGESTS[3]), 3)
    for recorded in (True, False):
        with pytest.raises(ModelFileError, match=f"compiled from the model with the digest {'a' * 64}, .* {'b' * 64}"):
            load_module(path, DIGESTS[-5], recorded=recorded)


@pytest.mark.parametrize("recorded", [True, False])
def test_a_module_of_another_tvm_is_refused(path: Path, recorded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tvm, "__version__", "0.99")
    with pytest.raises(ModelFileError, match=r"was compiled by TVM 0\..* this is TVM 0\.99: compile it anew"):
        load_module(path, recorded=recorded)


def test_a_module_needs_its_record_or_a_word(path: Path) -> None:
    record_path(path).unlink()
    with pytest.raises(ModelFileError, match=r"model\.so\.json, the record of model\.so, is missing; .*mrt compile"):
        load_module(path)
    check(load_module(path, recorded=False), 3)


@pytest.mark.parametrize("place", [0.0, 0.3, 0.6, 0.999])
def test_a_changed_byte_is_refused_before_it_is_loaded(
    path: Path, place: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tvm.runtime.load_module", None)
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"model\.so holds .*one of them was changed or replaced; compile it anew"):
        load_module(path)


def edited(path: Path, change: Change) -> None:
    data = json.loads(record_path(path).read_text())
    change(data)
    record_path(path).write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d.update(format_version=2), "format_version 2; 1 is needed"),
        (lambda d: d.update(format_version=True), "format_version True; 1 is needed"),
        (lambda d: d.update(format_version=1.0), "format_version 1.0; 1 is needed"),
        (lambda d: d.pop("format_version"), "format_version is missing"),
        (lambda d: d.update(extra=1), "extra is no key"),
        (lambda d: d["made_from"].update(extra=1), "made_from.extra is no key"),
        (lambda d: d["made_from"].pop("batch"), "made_from.batch is missing"),
        (lambda d: d["made_from"].update(batch="2"), "made_from.batch is '2': "),
        (lambda d: d["made_from"].update(batch=True), "made_from.batch is True: "),
        (lambda d: d["made_from"].update(model="A" * 64), "made_from.model is "),
        (lambda d: d["made_from"].update(model="a" * 64 + "\n"), "made_from.model is "),
        (lambda d: d["made_from"]["target"].update(kind="cuda"), "made_from.target.kind is "),
        (lambda d: d.update(size=-1), "size is "),
        (lambda d: d.update(sha256="0" * 64), "one of them was changed"),
        (lambda d: d.update(size=d["size"] + 1), "one of them was changed"),
        (lambda d: d["made_from"].update(batch=4), r"its batch is 2, model\.so\.json states 4"),
        (lambda d: d["made_from"].update(workers=4), r"its workers is 1, model\.so\.json states 4"),
        (lambda d: d["made_from"].update(model="c" * 64), "its model is a"),
        (lambda d: d["made_from"]["versions"].update(llvm="0"), "its versions is "),
        (lambda d: d["made_from"]["versions"].update(tvm="0.1"), "compiled by TVM 0.1 .*this is TVM "),
        (lambda d: d["made_from"]["target"].update(mcpu="i386"), "its target is "),
    ],
)
def test_a_record_that_does_not_fit_is_refused(path: Path, change: Change, said: str) -> None:
    edited(path, change)
    with pytest.raises(ModelFileError, match=said) as raised:
        load_module(path)
    assert "compile it anew" in str(raised.value) and str(path) in str(raised.value)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"[]", b"null", b"\xff", b'{"format_version": 1}', b"[" * 100_000, "{}".encode("utf-16")),
        b'{"size": 1, "size": 1}',
    ],
)
def test_what_is_no_record_is_refused(path: Path, content: bytes) -> None:
    record_path(path).write_bytes(content)
    with pytest.raises(ModelFileError, match=r"model\.so\.json is no record of a module: "):
        load_module(path)


def test_a_key_that_stands_twice_is_refused(path: Path) -> None:
    text = record_path(path).read_text()
    record_path(path).write_text(text.replace('"batch"', '"batch": 2, "batch"'))
    with pytest.raises(ModelFileError, match="the key 'batch' stands twice"):
        load_module(path)


def folder_at(path: Path) -> None:
    path.mkdir()


def large_at(path: Path) -> None:
    """Only its length is stored."""
    with path.open("wb") as file:
        file.truncate((RECORD_LIMIT if path.suffix == ".json" else MODULE_LIMIT) + 1)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    ("made", "said"),
    [
        (os.mkfifo, "is a named pipe; a regular file is needed"),
        (folder_at, "is a folder; a regular file is needed"),
        (lambda path: path.symlink_to("/dev/zero"), "is a device; a regular file is needed"),
        (lambda path: path.symlink_to("absent"), "No such file"),
        (lambda path: path.symlink_to(path), "symbolic links"),
        (large_at, "bytes; at most .* are read"),
    ],
)
@pytest.mark.parametrize("which", ["model.so", "model.so.json"])
def test_what_is_no_file_is_refused(path: Path, which: str, made: Callable[[Path], None], said: str) -> None:
    place = path.with_name(which)
    place.unlink()
    made(place)
    for read in (load_module, lambda path: module_in(path.parent, DIGESTS[3])):
        with pytest.raises(ModelFileError, match=f"{which}.*({said}|it is a link; a regular file is needed)"):
            read(path)


def test_a_link_to_a_module_is_a_module(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.so"
    link.symlink_to(path)
    record_path(link).symlink_to(record_path(path))
    check(load_module(link), 3)

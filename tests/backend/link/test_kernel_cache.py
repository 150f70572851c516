"""The cache of kernels: it changes nothing, compiles what is new, and takes nothing that another may have put there."""

from __future__ import annotations

import hashlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tvm
from networks import IntegerNetwork
from tvm import te

from mrt.backend import KernelCache, compile_model, kept_modules
from mrt.backend.link import kernel_objects
from mrt.backend.link.calls import taking_pointers
from mrt.backend.link.kernel_cache import ABANDONED_SECONDS, LOOKS, NEW
from mrt.backend.link.kernel_objects import KernelObject, KernelObjects
from mrt.backend.lowering import region
from mrt.backend.machine import Machine
from mrt.errors import CompilationError

KEY, OTHER = "a" * 64, "b" * 64


def key_at(place: int) -> str:
    """One by which a large folder is not looked through."""
    return f"{'f' * 8}{place:056}"


def cache_at(folder: Path, most_bytes: int = 2**20) -> KernelCache:
    folder.mkdir(mode=0o700, exist_ok=True)
    return KernelCache(folder, most_bytes)


@pytest.fixture
def kernels_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No module is kept as a whole, which would spare the kernels' look-up."""
    monkeypatch.setattr(kept_modules, "MOST_OF_CACHE", 0)


def module_of(network: IntegerNetwork, cache: KernelCache | None) -> str:
    """The digest of the compiled module's file."""
    parts = network.graph, network.inputs, network.outputs, None, "0" * 64, {"mcpu": "native", "threads": 1}
    return str(compile_model(*parts, cache=cache).record.sha256)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What LLVM was given, as it is given more."""
    given: list[object] = []
    as_object = kernel_objects.as_object

    def noted(built: object) -> bytes:
        given.append(built)
        return bytes(as_object(built))

    monkeypatch.setattr(kernel_objects, "as_object", noted)
    return given


@pytest.mark.usefixtures("kernels_alone")
def test_the_module_is_the_same_and_what_is_known_is_not_compiled(tmp_path: Path, compilations: list[object]) -> None:
    cache, network = cache_at(tmp_path / "cache"), IntegerNetwork(1)
    plain = module_of(network, None)
    count = len(compilations)
    assert module_of(network, cache) == plain
    assert len(compilations) == 2 * count
    assert module_of(network, cache) == plain
    assert len(compilations) == 2 * count

    entries = sorted(cache.folder.iterdir())
    for path in entries[::2]:
        path.unlink()
    assert module_of(network, cache) == plain
    assert 2 * count < len(compilations) < 3 * count
    assert sorted(cache.folder.iterdir()) == entries

    del compilations[count:]
    for path in entries:  # as by a bit of the disk, or a hand
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert module_of(network, cache) == plain
    assert len(compilations) == 2 * count


def test_other_weights_have_the_same_kernels_which_are_not_even_scheduled(
    tmp_path: Path, compilations: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = cache_at(tmp_path / "cache")
    module_of(IntegerNetwork(1), cache)
    del compilations[:]
    scheduled: list[object] = []
    monkeypatch.setattr(region, "schedule", lambda request: scheduled.append(request))
    module_of(IntegerNetwork(1, seed=5), cache)
    assert (scheduled, compilations) == ([], [])


def test_what_differs_is_made_anew(tmp_path: Path, compilations: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    first_objects, target = KernelObjects(cache_at(tmp_path / "cache")), Machine.of().target

    def kernel(
        added: int, name: str = "add", target: object = target, objects: KernelObjects = first_objects
    ) -> KernelObject:
        x = te.placeholder((64,), "int32", "x")
        function = te.create_prim_func([x, te.compute((64,), lambda i: x[i] + added, name="y")])
        return objects.kernel({name: taking_pointers(function)}, target)[name]

    first = kernel(1)
    assert kernel(1, "add7") == first
    assert len(compilations) == 1
    others = [kernel(2), kernel(1, "sum"), kernel(1, target=tvm.target.Target({"kind": "llvm", "mcpu": "nehalem"}))]
    assert len(compilations) == 4
    assert len({each.symbol for each in (first, *others)}) == 4
    monkeypatch.setattr(kernel_objects, "_toolchain", lambda: "of tomorrow")
    later = KernelObjects(first_objects.cache)
    assert kernel(1, objects=later) == first  # its code is the same today
    assert len(compilations) == 5


@pytest.mark.parametrize("at", [0, 5, 13, 40, 45, 60, -1])
@pytest.mark.parametrize("change", ["flip", "cut", "add"])
def test_an_entry_that_was_changed_is_none(tmp_path: Path, at: int, change: str) -> None:
    cache = cache_at(tmp_path)
    cache.put(KEY, b"machine code of a kernel")
    assert cache.get(KEY) == b"machine code of a kernel"
    path = tmp_path / KEY
    held = bytearray(path.read_bytes())
    if change == "flip":
        held[at] ^= 0x10
    elif change == "cut":
        del held[at:]
    else:
        held[at:at] = b"!"
    path.write_bytes(held)
    assert cache.get(KEY) is None


def test_an_entry_is_that_of_its_key_and_user_alone(tmp_path: Path) -> None:
    cache = cache_at(tmp_path)
    cache.put(KEY, b"code")
    assert (tmp_path / KEY).stat().st_mode & 0o777 == 0o600
    (tmp_path / OTHER).write_bytes((tmp_path / KEY).read_bytes())
    assert cache.get(OTHER) is None
    os.unlink(tmp_path / OTHER)
    (tmp_path / OTHER).symlink_to(tmp_path / KEY)
    assert cache.get(OTHER) is None
    os.chmod(tmp_path / KEY, 0o622)
    assert cache.get(KEY) is None
    os.unlink(tmp_path / KEY)
    os.mkfifo(tmp_path / KEY)
    assert cache.get(KEY) is None


def test_it_is_bounded_and_keeps_what_was_used_last(tmp_path: Path) -> None:
    cache, larger = cache_at(tmp_path, most_bytes=3000), cache_at(tmp_path)
    for place in range(5):
        larger.put(key_at(place), bytes(700))
        os.utime(tmp_path / key_at(place), (place, place))
    assert cache.get(key_at(0)) is not None  # so that it is the last
    old, new = tmp_path / f"{NEW}old", tmp_path / f"{NEW}young"
    for path in (old, new):
        path.write_bytes(b"")
    os.utime(old, (0, time.time() - 2 * ABANDONED_SECONDS))
    cache.trim()
    assert {path.name for path in tmp_path.iterdir()} == {key_at(0), key_at(3), key_at(4), new.name}
    assert cache.get(key_at(4)) == bytes(700)


def test_a_folder_is_looked_through_some_times_while_it_is_filled_once(tmp_path: Path) -> None:
    """Whatever the sizes, and by whichever process: a full folder is not read again after each compilation."""
    looks = []

    class Watched(KernelCache):
        def trim(self) -> None:
            looks.append(sum(path.stat().st_size for path in tmp_path.iterdir()))
            super().trim()

    most, count = 100_000, 1_000
    cache = Watched(tmp_path, most_bytes=most)
    for place in range(count):
        cache.put(hashlib.sha256(bytes([place % 256, place // 256])).hexdigest(), bytes(50 + 150 * (place % 2)))
    assert 0.5 * LOOKS < len(looks) * most / (count * 125) < 2 * LOOKS
    assert max(looks) < 1.2 * most
    cache.put("0" * 64, b"code")
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= most


def test_writers_at_once_leave_whole_entries(tmp_path: Path) -> None:
    caches = [cache_at(tmp_path), cache_at(tmp_path, most_bytes=300_000)]
    content = {f"{place:064}": bytes([place]) * 100_000 for place in range(6)}

    def use(turn: int) -> bool:
        cache = caches[turn % 2]
        key = f"{turn % 6:064}"
        cache.put(key, content[key])
        cache.trim()
        return all(found is None or found == content[k] for k in content for found in [cache.get(k)])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(use, range(120)))
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(NEW)]


def test_what_cannot_be_kept_is_compiled_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = KernelCache(tmp_path / "file")
    cache.put(KEY, b"code")
    cache.trim()
    assert cache.get(KEY) is None


def test_the_environment_says_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRT_CACHE", "off")
    assert KernelCache.usual() is None
    monkeypatch.delenv("MRT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    found = KernelCache.usual()
    assert found == KernelCache(tmp_path / "caches/mrt/kernels", 2**30)
    assert found.folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MRT_CACHE_BYTES", "1000")
    assert KernelCache.usual() == KernelCache(tmp_path / ".cache/mrt/kernels", 1000)
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    assert KernelCache.usual() is None


def test_a_folder_that_others_may_change_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "shared"
    monkeypatch.setenv("MRT_CACHE", str(folder))
    folder.mkdir()
    for mode in (0o720, 0o702):
        folder.chmod(mode)
        with pytest.raises(CompilationError, match=r"shared may be changed by others.*chmod go-w.*MRT_CACHE=off"):
            KernelCache.usual()
    folder.chmod(0o755)
    assert KernelCache.usual() is not None
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.setenv("MRT_CACHE", str(tmp_path / "link"))
    with pytest.raises(CompilationError, match="may be changed by others"):
        KernelCache.usual()
    monkeypatch.setenv("MRT_CACHE", str(folder))
    monkeypatch.setenv("MRT_CACHE_BYTES", "1e6")
    with pytest.raises(CompilationError, match=r"MRT_CACHE_BYTES is '1e6'; a positive whole number"):
        KernelCache.usual()

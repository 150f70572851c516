"""What engines are given and how they are timed."""

from __future__ import annotations

import platform
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from loaded import BENCHMARKS, load_benchmark

peers = load_benchmark("peers")


@pytest.mark.parametrize("batch", [1, 3, 5, 8])
def test_all_samples_are_run_in_order_whatever_the_batch(batch: int) -> None:
    memory = np.empty((batch, 2), np.float32)  # an engine may give its own
    shapes = []

    def bind(x: np.ndarray) -> object:
        shapes.append(x.shape)
        return lambda: np.copyto(memory, x * 2) or memory

    test = np.arange(10, dtype=np.float32).reshape(5, 2)
    np.testing.assert_array_equal(peers.outputs_of(bind, test, batch), test * 2)
    assert shapes == [(batch, 2)] * -(-5 // batch)


def test_a_turn_has_calls_enough_and_ends() -> None:
    calls = []
    found = peers.times_of(lambda: calls.append(0), seconds=1e-9)
    assert len(found) == peers.LEAST and len(calls) == peers.LEAST + 1  # the first is not timed
    assert len(peers.times_of(lambda: None, seconds=0.02)) > peers.LEAST
    assert all(time >= 0 for time in found)


@pytest.mark.skipif((platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="there is no AMX elsewhere")
def test_amx_is_refused_and_nothing_else() -> None:
    code = """
        import ctypes, errno, os, threading
        import peers
        peers.refuse_amx()
        library = ctypes.CDLL(None, use_errno=True)
        granted = ctypes.c_uint64()
        def ask():
            refused.append(library.syscall(158, 0x1023, 18) == -1 and ctypes.get_errno() == errno.EPERM)
        refused = []
        ask()
        thread = threading.Thread(target=ask)
        thread.start(); thread.join()
        assert refused == [True, True], refused
        assert library.syscall(39) == os.getpid()
        library.syscall(158, 0x1022, ctypes.byref(granted))
        assert not granted.value & 1 << 18
        print(open(peers.__file__).read(3))
    """
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=BENCHMARKS, capture_output=True, text=True
    )
    assert (child.stdout, child.stderr) == ('"""\n', "")

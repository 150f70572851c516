"""The collector of cyclic garbage is paused for a while, and left as it was."""

from __future__ import annotations

import gc

import pytest

from mrt.collector import paused_collector


@pytest.mark.parametrize("enabled", [True, False])
def test_it_is_left_as_it_was(enabled: bool) -> None:
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with paused_collector(), paused_collector():
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
        with pytest.raises(KeyError), paused_collector():
            raise KeyError
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()

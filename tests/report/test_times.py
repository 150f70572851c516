"""What is measured of a compiled network: beside the float one, and of its functions as many as there is time for."""

from __future__ import annotations

import time
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from mrt.backend import ONE_THREAD
from mrt.backend.machine import Machine
from mrt.backend.profile import profile
from mrt.backend.rewrites.known_bounds import bounds_of_inputs
from mrt.report.measure import latency
from mrt.report.measure.latency import float_run_of, in_turns, latency_of
from mrt.report.measure.timing import profiled_share
from mrt.runtime import Module
from tests.report.small_network import small_graph, small_model, small_subject


@cache
def compiled(batch: int) -> Module:
    return small_model().compile(batch=batch)


def test_two_networks_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "SECONDS", 0.1)
    order: list[str] = []
    quick, slow = in_turns([lambda: order.append("quick"), lambda: (order.append("slow"), time.sleep(0.01))])
    assert min(slow) >= 0.01 > np.median(quick)
    turns = [a for a, b in pairwise(order) if a != b]
    assert turns.count("slow") >= 4


@pytest.mark.parametrize("batch", [2, 4])
def test_the_float_network_is_run_on_what_the_integers_stand_for(batch: int) -> None:
    module = compiled(batch)
    run = float_run_of(small_subject(module=module))
    found = run()
    parts = [found] if module.workers == 1 else found
    assert isinstance(parts, list) and len(parts) == module.workers
    assert all(len(part[0]) == module.batch for part in parts)
    random = np.random.default_rng(0)
    (entry,) = module.inputs
    shape = (module.batch * module.workers, *entry.shape[1:])
    integers = random.integers(entry.lo, entry.hi, shape, dtype=np.int64, endpoint=True)
    real = (integers * float(entry.scale)).astype(np.float32)
    wanted = [small_graph().evaluate({"x": x[None]})[0] for x in real]
    np.testing.assert_allclose(
        np.concatenate([part[0] for part in parts]), np.concatenate(wanted), rtol=1e-3, atol=1e-3
    )


def test_a_latency_says_what_the_float_one_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "SECONDS", 0.05)
    module = compiled(2)
    found = latency_of(small_subject(module=module), lambda: time.sleep(0.002))
    assert found.float_network is not None and found.float_network >= 0.002 and found.float_by.startswith("TVM")
    alone = latency_of(small_subject(module=module))
    assert alone.float_network is None and alone.float_range is None and alone.float_by == ""


def test_where_compiling_takes_long_the_functions_with_most_products_are_measured() -> None:
    model = small_model()
    given = model.graph, bounds_of_inputs(model.inputs), Machine.of(ONE_THREAD), 1
    whole, part = profile(*given), profile(*given, share=0.4)
    assert all(call.seconds for call in whole.calls)
    left = [(call.products, call.seconds is not None) for call in part.calls]
    measured = [products for products, is_measured in left if is_measured]
    assert 0 < len(measured) < len(left)
    assert min(measured) >= max(products for products, is_measured in left if not is_measured)
    assert profiled_share(small_subject(seconds={"compile": 60.0})) == pytest.approx(15 / 60)
    assert profiled_share(small_subject(seconds={"compile": 1.0})) == 1.0

"""Workers that are killed, hang, or see other data: the right result, or one clear error."""

from __future__ import annotations

import pickle
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from mrt.batches import Batches
from mrt.calibration.stream import places
from mrt.config import NpzDataset
from mrt.datasets import load_dataset
from mrt.errors import ClusterError, ConfigError, DataError
from mrt.execution import Executor, cluster
from mrt.execution.environment import environment
from mrt.execution.opened import executor_of, opened
from mrt.execution.options import ClusterConfig
from mrt.symbol import TensorType, variable
from tests.execution import work

distributed = pytest.importorskip("distributed", reason="Dask is not installed")
dask = pytest.importorskip("dask", reason="Dask is not installed")


@pytest.fixture
def client() -> Iterator[Any]:
    """A client of one worker, in this process."""
    with distributed.Client(processes=False, n_workers=1, dashboard_address=None, set_as_default=False) as made:
        yield made


def test_what_a_killed_worker_did_is_done_again(workers: Executor, tmp_path: Path) -> None:
    fails = work.FailsOnce(tmp_path / "in order", 7)
    assert list(workers.in_order(fails, range(12))) == [n * n for n in range(12)]
    total = workers.gathered(work.SumOnce(work.FailsOnce(tmp_path / "gathered", 9)), range(40))
    assert total == work.Total(sum(range(40)), tuple(range(40)))
    assert {path.name for path in tmp_path.iterdir()} == {"in order", "gathered"}


def test_what_a_killed_worker_kept_is_made_again(workers: Executor, tmp_path: Path) -> None:
    kept = workers.kept(work.Step(), workers.kept(work.first_state, range(6)))
    kept = workers.kept(work.Step(work.FailsOnce(tmp_path / "kept", 3)), kept)
    found = list(workers.in_order(work.contents, kept))
    assert found == [(2, {"new": [2 * n] * 3, "old": [n] * 3}) for n in range(6)]


@pytest.mark.slow
def test_a_worker_that_hangs_is_given_up(workers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the result of part 0, too."""
    monkeypatch.setattr(workers._connection, "_patience", 10.0)
    fails = work.FailsOnce(tmp_path / "stopped", 2, signal.SIGSTOP)
    assert list(workers.in_order(fails, range(5))) == [n * n for n in range(5)]


@pytest.mark.slow
def test_a_worker_that_takes_long_to_start_again_is_waited_for(tmp_path: Path) -> None:
    """Dask would give it up, by a setting that is read while workers run, and have none in its place."""
    impatient = dask.config.set({"distributed.deploy.lost-worker-timeout": "0.1s"})
    with impatient, opened(ClusterConfig(processes=1, patience=60)) as executor:
        fails = work.FailsOnce(tmp_path / "killed", 2)
        assert list(executor.in_order(fails, range(5))) == [n * n for n in range(5)]


def test_a_part_that_ends_every_worker_is_an_error(workers: Executor) -> None:
    with pytest.raises(ClusterError, match="ended 2 workers, the last tls://127.0.0.1:[0-9]+; their logs say why"):
        list(workers.in_order(work.ends_its_process, range(1)))


def test_a_cluster_whose_workers_are_gone_is_an_error(client: Any) -> None:
    executor = cluster.Cluster(client, patience=0.5)
    client.retire_workers()
    with pytest.raises(ClusterError, match="all workers are gone, and none has come in 1.5 s; start some"):
        list(executor.in_order(work.squared, range(3)))


def test_what_the_work_itself_raises_is_no_lost_worker(workers: Executor, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(workers.in_order(work.FailsOnce(tmp_path / "no folder" / "marker", 1), range(3)))


def data_of(folder: Path) -> NpzDataset:
    np.savez(folder / "data.npz", x=np.arange(24, dtype=np.float32).reshape(8, 3))
    return NpzDataset.model_validate({"npz": folder / "data.npz", "y": None})


def described(config: NpzDataset) -> list[object]:
    """The chunks of three samples, which the workers read."""
    inputs = (variable("x", TensorType((1, 3), "float32")),)
    data = load_dataset(config, {"x": inputs[0].type}, "data.calibration")
    return list(places(Batches(data.batches(3), inputs, {}, total=data.size, dataset=data), inputs, 3, None))


def test_workers_read_their_own_parts_and_nothing_else(workers: Executor, tmp_path: Path) -> None:
    parts = described(data_of(tmp_path))
    found = list(workers.in_order(work.read, parts))
    assert found == [part.read().arrays["x"].tolist() for part in parts] and len(found) == 3


def test_a_worker_that_has_lost_its_data_is_an_error(workers: Executor, tmp_path: Path) -> None:
    config = data_of(tmp_path)
    parts = described(config)
    config.npz.rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=r"data\.npz.* does not exist"):  # said where the work is sent
        list(workers.in_order(work.read, parts))
    (tmp_path / "elsewhere").rename(config.npz)
    pickle.dumps(parts)  # what they hold here is known from here on
    config.npz.rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=r"data\.npz.* does not exist.*\(on worker "):
        list(workers.in_order(work.read, parts))
    (tmp_path / "elsewhere").rename(config.npz)
    assert len(list(workers.in_order(work.read, parts))) == 3


def test_a_worker_that_reads_other_samples_is_refused(workers: Executor, tmp_path: Path) -> None:
    config = data_of(tmp_path)
    parts = described(config)
    pickle.dumps(parts)  # what they hold here is known from here on
    np.savez(config.npz, x=np.ones((8, 3), np.float32))
    with pytest.raises(DataError, match="data.calibration does not hold the samples that it holds where the run"):
        list(workers.in_order(work.read, parts))


def test_a_worker_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch, client: Any) -> None:
    other = {**environment(), "NumPy": "1.0"}
    monkeypatch.setattr(cluster, "environment", lambda: other)
    with pytest.raises(ClusterError, match=r"^worker \d has NumPy [\d.]+, here it is 1.0; results might differ"):
        executor_of(client)


def test_nothing_listens_but_on_this_machine(workers: Executor) -> None:
    own = psutil.Process()
    listening = [c for p in (own, *own.children(recursive=True)) for c in p.net_connections() if c.status == "LISTEN"]
    assert len(listening) > 2 and {each.laddr.ip for each in listening} == {"127.0.0.1"}


def test_a_scheduler_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mrt.execution.opened.ANSWER", 0.5)
    with (
        pytest.raises(ClusterError, match="the scheduler tcp://127.0.0.1:1 does not answer"),
        opened(ClusterConfig(address="tcp://127.0.0.1:1")),
    ):
        pass


def test_an_encrypted_scheduler_needs_certificates_that_are_there(tmp_path: Path) -> None:
    config = ClusterConfig(address="tls://127.0.0.1:1")
    with pytest.raises(ClusterError, match="is reached by TLS, and Dask's configuration names no"), opened(config):
        pass
    named = {f"distributed.comm.tls.{key}": str(tmp_path / "no.pem") for key in ("ca-file", "client.cert")}
    missing = dask.config.set(named)
    with missing, pytest.raises(ClusterError, match="certificates are those that it has"), opened(config):
        pass


def test_without_dask_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("distributed", "mrt.execution.cluster"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ClusterError, match=r"pip install 'mrt-quantizer\[dask\]'"), opened(ClusterConfig(processes=1)):
        pass


@pytest.mark.parametrize("given", ["tcp://127.0.0.1:8786", 4, object()])
def test_what_is_no_client_is_refused(given: object) -> None:
    with pytest.raises(ConfigError, match="a distributed.Client of Dask, or None, is needed"):
        executor_of(given)

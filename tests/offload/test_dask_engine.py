"""Workers of Dask as processes over TCP: the loader on them, workers that are killed, weights, certificates."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import os
import pickle
import random
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from random import randint

import pytest
from libraries import skip_without
from needs import needs

skip_without("distributed", reason="needs lightbed[offload]")

from testbed.errors import OffloadError
from testbed.offload.configuration import Choice, Configuration, Tls
from testbed.offload.dask_engine import DaskEngine, WeightedRotation
from testbed.offload.engine import WorkerLost
from testbed.offload.epoch import Order, make_order
from testbed.offload.feed import Feed, Rule, Sides
from testbed.offload.local_workers import start_local_workers
from testbed.offload.session import load_script, open_engine
from testbed.offload.stages import Pipeline, Runner, convert_to_arrays

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / ".venv-clients" / "bin" / "python"

LIBRARIES = {"digits": "sklearn", "images": "torchvision", "speech": "librosa", "text": "tokenizers"}

TRAINER = """
import os, sys
from testbed.offload.dask_engine import DaskEngine
from testbed.offload.local_workers import start_local_workers
with start_local_workers(2) as address:
    client = DaskEngine(address)._client
    client.wait_for_workers(2, timeout=60)
    print(*client.run(os.getpid).values(), client.run_on_scheduler(os.getpid), flush=True)
    sys.stdin.read()
"""

if sys.platform != "linux":
    pytest.skip("processor time and sessions are those of Linux", allow_module_level=True)


def double(number):
    return 2 * number


def who(_number):
    return os.getpid()


def nobody_has_lightbed(number):
    """Say whether the worker could import us; it shall not have to."""
    try:
        import testbed
    except ImportError:
        return number
    return testbed.__file__


@pytest.fixture(scope="module")
@needs("process", "socket")
def pool():
    """Provide a scheduler with two workers of this machine."""
    with start_local_workers(2) as address:
        yield address


def opened(address, transform, *, workers=2, **options):
    engine = DaskEngine(address, **options)
    runner = Runner(Pipeline(list(range(64)), transform, list))
    engine._client.wait_for_workers(workers, timeout=60)
    engine.open(runner)
    return engine, runner


def epoch_of(engine, runner, candidate, ratio=0.5, size=4):
    feed = Feed(Sides(runner, None, engine), make_order(64, size, shuffle_by="1"), Rule(candidate, ratio))
    return [value for _, batch in feed for value in batch], feed.counts


@pytest.mark.parametrize("candidate", ["p1", "p2", "p3"])
def test_each_candidate_prepares_half_on_workers(pool, candidate):
    engine, runner = opened(pool, double)
    assert engine.slot_count == 2
    assert engine.list_workers() == ("127.0.0.1", "127.0.0.1")
    found, counts = epoch_of(engine, runner, candidate)
    engine.close()
    assert sorted(found) == [2 * number for number in range(64)]
    assert counts.remote_count == counts.local_count
    assert (counts.lost_count, counts.taken_back_count) == (0, 0)


def test_an_error_of_the_transform_comes_from_the_worker(pool):
    def fails(_number):
        raise ValueError("a broken element")

    engine, runner = opened(pool, fails)
    with pytest.raises(ValueError, match="a broken element"):
        epoch_of(engine, runner, "p3", 1.0)
    engine.close()


@pytest.mark.long
def test_a_broken_sample_names_its_index_at_once(pool, tmp_path):
    """Its transform runs once, and an error of the file system is no lost worker."""
    calls = tmp_path / "calls"

    class Special(OSError):
        def __init__(self, one, two):
            super().__init__(one, two)
            self.lock = threading.Lock()

    for error in (lambda: FileNotFoundError("no file"), lambda: Special(1, "no file")):
        calls.write_text("")

        def fails(number, error=error):
            if number == 17:
                with calls.open("a") as file:
                    file.write("called ")
                raise error()
            return number

        engine, runner = opened(pool, fails)
        with pytest.raises(
            (FileNotFoundError, RuntimeError), match=r"no file[^$]*sample 17 of the dataset is broken"
        ):
            epoch_of(engine, runner, "p2", 1.0)
        engine.close()
        assert calls.read_text() == "called "


@pytest.mark.long
def test_a_fetch_that_never_ends_holds_up_no_other_engine(pool, monkeypatch):
    """Dask has one thread for the callbacks of all clients of a process; a client that closes leaves fetches undone."""
    first, _ = opened(pool, double)
    second, _ = opened(pool, double)
    is_fetching = threading.Event()

    async def fetch_forever(*_arguments, **_options):
        is_fetching.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(first._client, "_gather", fetch_forever)
    lost = first.submit("p2", 3, 0)
    assert is_fetching.wait(30)
    assert second.submit("p2", 3, 0).result(10) == convert_to_arrays(6)
    first.close()
    with pytest.raises(WorkerLost):
        lost.result(5)
    second.close()


@pytest.mark.long
def test_what_cannot_travel_is_named(pool):
    lock = threading.Lock()

    def locked(number):
        with lock:
            return number

    with pytest.raises(OffloadError, match=r"`lock of .*locked` is a _thread\.lock, which cannot be pickled"):
        opened(pool, locked)

    class Refuses:
        def __setstate__(self, state):
            raise ImportError("no module of that name here")

        def __init__(self):
            self.value = 1

        __call__ = None

    with pytest.raises(OffloadError, match=r"a worker cannot set it up .*no module of that name here"):
        opened(pool, Refuses())


@pytest.mark.long
def test_draws_of_python_are_the_same_on_workers(pool):
    """Also by names that were imported from `random`; Dask's event loops draw meanwhile, there and here."""

    def drawn(number):
        found = [random.random(), randint(0, 10**9)]
        time.sleep(0.001)
        return number, *found, random.random(), random.gauss(0, 1)

    engine = DaskEngine(pool)
    runner = Runner(Pipeline(list(range(512)), drawn, list, 7))
    engine.open(runner)
    order = Order(range(512), 8)

    async def draw_in_loop():
        for _ in range(300):
            randint(0, 9)
            await asyncio.sleep(0.001)

    async def draw_in_loop_of_worker(dask_worker):
        await draw_in_loop()

    task = threading.Thread(target=lambda: engine._client.run(draw_in_loop_of_worker))
    here = threading.Thread(target=lambda: engine._client.sync(draw_in_loop))
    task.start()
    here.start()
    found = [
        value for _, batch in Feed(Sides(runner, None, engine), order, Rule("p3", 0.75)) for value in batch
    ]
    task.join()
    here.join()
    engine.close()
    assert found == [runner.prepare_element(number, 0) for number in range(512)]


@pytest.mark.long
def test_packages_beside_a_script_travel(pool, tmp_path, monkeypatch):
    """By the name of a module, of a function in it, of a module within it, and by an import that runs there."""
    package = tmp_path / "beside_offload"
    package.mkdir()
    (package / "__init__.py").write_text("from .inner import triple\n")
    (package / "inner.py").write_text("FACTOR = 3\ndef triple(number):\n    return FACTOR * number\n")
    (tmp_path / "script_offload.py").write_text(
        "import beside_offload, beside_offload.inner\nfrom beside_offload import triple\n"
        "def transform(number):\n"
        "    import late_offload.deep\n"
        "    from late_offload.deep import quadruple\n"
        "    return beside_offload.triple(number), triple(number), beside_offload.inner.FACTOR, quadruple(number)\n"
    )
    late = tmp_path / "late_offload"
    late.mkdir()
    (late / "__init__.py").write_text("")
    (late / "deep.py").write_text(
        "from . import deeper\ndef quadruple(number):\n    return deeper.FOUR * number\n"
    )
    (late / "deeper.py").write_text("FOUR = 4\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    script = importlib.import_module("script_offload")
    engine, runner = opened(pool, script.transform)
    found, counts = epoch_of(engine, runner, "p3", 1.0)
    engine.close()
    assert sorted(found) == [(3 * number, 3 * number, 3, 4 * number) for number in range(64)]
    assert counts.remote_count == 16


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.parametrize("name", ["digits", "images", "speech", "text"])
def test_workloads_run_on_workers(pool, name):
    """Each candidate gives the elements that the trainer makes, bit by bit."""
    if find_spec(LIBRARIES[name]) is None or find_spec("torch") is None:
        pytest.skip(f"the workload {name} needs {LIBRARIES[name]}: pip install 'lightbed[offload-workloads]'")
    script = load_script(name)
    runner = Runner(Pipeline(script.dataset, script.transform, None, seed=1))
    engine = DaskEngine(pool)
    engine.open(runner)
    here = [runner.prepare_batch(batch, 0) for batch in ((0, 1), (2, 3))]
    for candidate in ("p1", "p2", "p3"):
        feed = Feed(Sides(runner, None, engine), Order(range(4), 2), Rule(candidate, 1.0))
        batches = [batch for _, batch in feed]
        assert pickle.dumps(convert_to_arrays(batches)) == pickle.dumps(convert_to_arrays(here))
        assert feed.counts.local_count == feed.counts.taken_back_count == 0
    engine.close()


@pytest.mark.long
def test_weights_share_the_work(pool):
    """Three units of four go to the first worker."""
    engine, runner = opened(pool, who, weights={"worker-0": 3, "worker-1": 1})
    found, _ = epoch_of(engine, runner, "p2", 1.0)
    engine.close()
    shares = sorted(found.count(process) for process in set(found))
    assert shares[-1] >= 40, "a worker that has nothing to do may help: 48 is the plan"
    with pytest.raises(OffloadError, match="no worker is named worker-7"):
        opened(pool, who, weights={"worker-7": 1})


@pytest.mark.long
def test_jobs_that_share_the_workers_are_counted(pool):
    first, _ = opened(pool, double, job="first")
    assert len(first.list_jobs()) == 1
    second, _ = opened(pool, double, job="second")
    assert {name.split("-")[2] for name in first.list_jobs()} == {"first", "second"}
    second.close()
    first.close()


@pytest.mark.socket
def test_a_scheduler_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr("testbed.offload.dask_engine._CONNECT_TIMEOUT_S", 0.2)
    with pytest.raises(OffloadError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        DaskEngine("tcp://127.0.0.1:9")


def kill_some(engine, epochs, kills):
    """Return how many were killed: a worker ends in the middle of epochs, and another takes its place."""
    engine, runner = engine
    killed = 0
    for epoch in range(epochs):
        feed = Feed(Sides(runner, None, engine), Order(range(64), 4), Rule("p3", 0.75), epoch)
        seen = []
        for number, (_, batch) in enumerate(feed):
            seen += batch
            if number == 5 and epoch in kills:
                victim = min(engine._client.run(os.getpid).values())
                os.kill(victim, signal.SIGKILL)
                killed += 1
        assert sorted(seen) == [2 * number for number in range(64)]
    return killed


def held_by(engine):
    """Return what an engine holds in this process between epochs."""
    gc.collect()
    wait_until(lambda: not engine._client.futures)
    files = sum(1 for _ in Path("/proc/self/fd").iterdir())
    return {"futures": len(engine._client.futures), "threads": threading.active_count(), "files": files}


def wait_until(is_so, limit_s=30):
    deadline = time.monotonic() + limit_s
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.05)


@pytest.mark.long
@pytest.mark.process
@pytest.mark.socket
def test_an_epoch_whose_worker_is_killed_is_whole():
    with start_local_workers(2) as address:
        engine = opened(address, double)
        assert kill_some(engine, 2, {0}) == 1
        engine[0].close()


@pytest.mark.long
@pytest.mark.process
@pytest.mark.socket
def test_all_is_taken_back_at_once_when_all_workers_are_killed():
    """The patience is a minute, and 16 batches wait for workers; the scheduler runs on."""
    with start_local_workers(2) as address:
        engine, runner = opened(address, double)
        feed = Feed(Sides(runner, None, engine), Order(range(64), 4), Rule("p3", 1.0))
        seen = list(next(feed)[1])
        for process in engine._client.run(os.getpid).values():
            os.kill(process, signal.SIGKILL)
        began = time.monotonic()
        seen += [value for _, batch in feed for value in batch]
        spent = time.monotonic() - began
        engine.close()
    assert sorted(seen) == [2 * number for number in range(64)]
    assert spent < 20, "Dask tries for some seconds to fetch what a worker had"


@pytest.mark.long
@pytest.mark.process
@pytest.mark.socket
def test_fifty_epochs_with_five_workers_killed():
    with start_local_workers(7) as address:
        engine = opened(address, double)
        assert kill_some(engine, 10, {3}) == 1
        before = held_by(engine[0])
        assert kill_some(engine, 40, {2, 11, 20, 29}) == 4
        after = held_by(engine[0])
        engine[0].close()
    assert after["futures"] == before["futures"] == 0
    assert after["threads"] <= before["threads"] + 2, "threads of Dask's executors come when there is work"
    assert after["files"] <= before["files"], "connections to workers that are gone are closed"


@pytest.mark.long
@pytest.mark.process
@pytest.mark.socket
def test_a_training_goes_on_without_its_scheduler(monkeypatch):
    """All that was asked for is lost with it, and so is all that is asked then: the trainer prepares it."""
    monkeypatch.setattr("testbed.offload.dask_engine._CONNECT_TIMEOUT_S", 1.0)
    with start_local_workers(1) as address:
        engine, runner = opened(address, double, workers=1)
        os.kill(engine._client.run_on_scheduler(os.getpid), signal.SIGKILL)
        found, counts = epoch_of(engine, runner, "p3", 0.5)
        assert sorted(found) == [2 * number for number in range(64)]
        assert counts.taken_back_count + counts.remote_count == counts.local_count
        assert (engine.list_jobs(), engine.list_workers()) == (frozenset(), ())
        engine.close()


@pytest.mark.long
@pytest.mark.process
@pytest.mark.socket
@pytest.mark.skipif(not CLIENTS.exists(), reason="`make install-test` makes .venv-clients, with dask in it")
def test_workers_need_dask_and_nothing_of_ours():
    """An interpreter that has Dask alone, started where our folder is not."""
    with start_local_workers(2, python=str(CLIENTS)) as address:
        engine, runner = opened(address, nobody_has_lightbed)
        found, counts = epoch_of(engine, runner, "p3", 1.0)
        engine.close()
    assert sorted(found) == list(range(64))
    assert counts.remote_count == 16


@pytest.mark.long
def test_workers_of_a_cluster_that_is_there_stay(pool):
    with open_engine(Choice(scheduler=pool), Configuration()) as engine:
        engine.open(Runner(Pipeline([1, 2], double, list)))
        assert engine.submit("p2", 1, 0).result(30) == 4
        engine.close()
    after = DaskEngine(pool)
    assert after.slot_count == 2
    after.close()


@pytest.mark.long
@pytest.mark.process
@pytest.mark.socket
def test_workers_of_the_command_end_with_it():
    with open_engine(Choice(workers=1), Configuration()) as engine:
        engine.open(Runner(Pipeline([1, 2], double, list)))
        (process,) = engine._client.run(os.getpid).values()
        assert engine.submit("p2", 1, 0).result(30) == 4
        engine.close()
    assert not Path(f"/proc/{process}").exists()


@pytest.mark.long
@pytest.mark.process
@pytest.mark.socket
def test_workers_end_with_a_trainer_that_is_killed():
    """Nothing of the trainer runs any more that could end them: the system closes the pipes that it held."""
    asked = subprocess.Popen(
        [sys.executable, "-c", TRAINER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with asked as trainer:
        processes = [int(number) for number in trainer.stdout.readline().split()]
        ends = [os.pidfd_open(process) for process in processes]
        trainer.kill()
    try:
        assert len(ends) == 3
        for end in ends:
            assert select.select([end], [], [], 30)[0], "a worker runs on without its trainer"
    finally:
        for end in ends:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(end, signal.SIGKILL)
            os.close(end)


def test_turns_by_weight():
    shares = WeightedRotation({"a": 5, "b": 1, "c": 1})
    shares.set_addresses({"a": "A", "b": "B", "c": "C"})
    turns = [shares.choose_next() for _ in range(70)]
    assert [turns.count(name) for name in "ABC"] == [50, 10, 10]
    assert WeightedRotation({}).choose_next() is None
    with pytest.raises(OffloadError, match="the weight of a is 0"):
        WeightedRotation({"a": 0})


@pytest.mark.long
@pytest.mark.process
@pytest.mark.socket
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_with_certificates_all_connections_are_tls(tmp_path):
    """A trainer that names none is told so before it asks."""
    tls = Tls(tmp_path / "certificate.pem", tmp_path / "certificate.pem", tmp_path / "key.pem")
    names = ["-subj", "/CN=offload", "-days", "1", "-keyout", str(tls.key), "-out", str(tls.certificate)]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *names], check=True, capture_output=True
    )
    with start_local_workers(2, tls) as address:
        assert address.startswith("tls://127.0.0.1:")
        engine, runner = opened(address, double, tls=tls)
        found, counts = epoch_of(engine, runner, "p3", 1.0)
        engine.close()
        assert sorted(found) == [2 * number for number in range(64)]
        assert counts.remote_count == 16
        with pytest.raises(OffloadError, match="accepts only connections with certificates"):
            DaskEngine(address)

"""The same seed, the same answer, whoever walks."""

import os
import subprocess
import sys
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

import pytest
from needs import needs

from testbed.design.search import optimise
from testbed.design.search.worker_pool import InProcessExecutor, open_worker_pool
from testbed.errors import SearchError

SEARCH = {"steps": 25, "chains": 2, "seed": 5, "finalists": 2}
CHUNK = 10


@pytest.fixture(scope="module", autouse=True)
def _little_chunks():
    """Let a search look at its chains ten times as often."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("testbed.design.search.worker_pool.CHUNK_STEPS", CHUNK)
        yield


@pytest.fixture(scope="module")
def here(little, four):
    """Return what one process finds."""
    return optimise(little, four, 2, 25, **SEARCH)


@pytest.mark.long
@pytest.mark.process
def test_two_processes_find_what_one_finds(little, four, here):
    assert optimise(little, four, 2, 25, workers=2, **SEARCH) == here


@pytest.fixture
@needs("process")
def scheduler():
    """Provide a Dask scheduler and a worker, each a process of its own."""
    environment = os.environ | {"DASK_DISTRIBUTED__DASHBOARD__ENABLED": "false"}
    command = [sys.executable, "-m", "dask"]
    quiet = ["--no-dashboard"]
    boss = subprocess.Popen(
        [*command, "scheduler", "--host", "tcp://127.0.0.1", "--port", "0", *quiet],
        stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    try:
        line = next(line for line in boss.stderr if "Scheduler at:" in line)
        address = line.split("Scheduler at:")[1].strip()
        worker = subprocess.Popen(
            [*command, "worker", address, "--nworkers", "1", "--nthreads", "1", "--no-nanny", *quiet],
            stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment,
        )  # fmt: skip
        try:
            yield address
        finally:
            worker.kill()
            worker.wait()
    finally:
        boss.kill()
        boss.wait()
        boss.stderr.close()


@pytest.mark.long
@pytest.mark.socket
def test_workers_of_a_dask_scheduler_find_what_one_process_finds(little, four, here, scheduler):
    assert optimise(little, four, 2, 25, scheduler=scheduler, **SEARCH) == here


@pytest.mark.socket
def test_a_scheduler_that_does_not_answer_is_named(little, four, monkeypatch):
    monkeypatch.setattr("testbed.design.search.worker_pool._CONNECT_S", 0.2)
    with pytest.raises(
        SearchError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9 .*dask scheduler"
    ):
        optimise(little, four, 2, 25, scheduler="tcp://127.0.0.1:9", **SEARCH)


def test_without_dask_the_hint_is_reported(little, four, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(SearchError, match=r"install the extra \[cluster\] of lightbed"):
        optimise(little, four, 2, 25, scheduler="tcp://127.0.0.1:9", **SEARCH)


@pytest.mark.parametrize("address", ["nonsense", "tcp://nonsense", "tcp://", "tcp://a:b", "http://a:80"])
def test_what_is_no_address_is_refused_before_anybody_is_asked(little, four, monkeypatch, address):
    pytest.importorskip("distributed", reason="needs lightbed[cluster]")

    def nobody(*_about, **_more):
        pytest.fail("asked")

    monkeypatch.setattr("distributed.Client", nobody)
    with pytest.raises(
        SearchError, match=r"is not a valid scheduler address \(example: tcp://192\.0\.2\.1:8786\)"
    ):
        optimise(little, four, 2, 25, scheduler=address, **SEARCH)


@pytest.mark.process
def test_a_lost_process_is_told():
    with (
        pytest.raises(SearchError, match=r"workers of the search were lost.*resume"),
        open_worker_pool(2) as executor,
    ):
        executor.submit(os._exit, 1).result()


class Failing(InProcessExecutor):
    """Workers that are lost after some calls."""

    left = 3

    def submit(self, call, /, *arguments):
        self.left -= 1
        if self.left >= 0:
            return super().submit(call, *arguments)
        future = Future()
        future.set_exception(BrokenProcessPool("terminated abruptly"))
        return future


def test_what_was_searched_until_workers_were_lost_counts(little, four, monkeypatch):
    monkeypatch.setattr("testbed.design.search.worker_pool.InProcessExecutor", Failing)
    found = optimise(little, four, 2, 25, **SEARCH)
    assert (found.stopped, found.steps) == (True, 3 * CHUNK)
    assert len(found.ranking) > 1
    assert found.reasons[-1].startswith(
        "The search was cut short by a loss of workers (BrokenProcessPool) after 30"
    )
    monkeypatch.setattr(Failing, "left", 0)
    with pytest.raises(SearchError, match="workers of the search were lost"):
        optimise(little, four, 2, 25, **SEARCH)


@pytest.mark.parametrize("numbers", [{"workers": 0}, {"chains": 0}])
def test_nobody_at_work_is_refused(little, four, numbers):
    with pytest.raises(SearchError, match="give 1 or more"):
        optimise(little, four, 2, 25, **SEARCH | numbers)


@pytest.mark.long
def test_a_search_goes_on_where_it_was_left(little, four, here, tmp_path):
    file = tmp_path / "search.json"
    left = optimise(little, four, 2, 25, checkpoint=file, until=13, **SEARCH)
    assert (left.stopped, left.steps) == (True, 26)
    resumed = optimise(little, four, 2, 25, checkpoint=file, resume=True, **SEARCH)
    assert resumed == here
    assert not resumed.stopped


@pytest.mark.slow
def test_ctrl_c_keeps_the_best_so_far_and_the_rest_can_be_done_later(little, four, here, tmp_path):
    file = tmp_path / "search.json"
    seen = []

    def press(progress):
        seen.append(progress)
        if progress.steps == 3 * CHUNK:
            raise KeyboardInterrupt

    stopped = optimise(little, four, 2, 25, checkpoint=file, progress=press, **SEARCH)
    assert (stopped.stopped, stopped.steps) == (True, 3 * CHUNK)
    assert stopped.predicted.closed_form_s <= seen[0].best_s
    assert optimise(little, four, 2, 25, checkpoint=file, resume=True, **SEARCH) == here


@pytest.mark.slow
def test_another_search_is_not_resumed(little, four, tmp_path):
    file = tmp_path / "search.json"
    optimise(little, four, 2, 25, checkpoint=file, **SEARCH | {"steps": 5})
    other = replace(little, batch=32)
    with pytest.raises(SearchError, match="belongs to another search"):
        optimise(other, four, 2, 25, checkpoint=file, resume=True, **SEARCH | {"steps": 5})


@pytest.mark.long
def test_progress_counts_steps_of_all_chains_and_the_best_only_falls(little, four):
    told = []
    optimise(little, four, 2, 25, progress=told.append, **SEARCH)
    assert [progress.steps for progress in told] == [0, 10, 20, 30, 40, 45, 50]
    assert {progress.total for progress in told} == {50}
    costs = [progress.best_s for progress in told]
    assert costs == sorted(costs, reverse=True)

"""Models in service: named, numbered, warm, swapped, and closed when nobody uses them any more."""

import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from lightning.compiler import save_model
from lightning.errors import InputError, ModelFileError, ServingError, UnknownModel
from lightning.serving.repository import Repository


@pytest.fixture
def repository(opened):
    return Repository(opened)


def key_asked(repository, name="m", key=9):
    with repository.acquire(name) as instance:
        inputs = np.zeros((1, *instance.raw_shape), np.uint8)
        return instance.version, instance.run(inputs, [key]).scores[0, 0]


def test_a_loaded_model_answers_by_name_and_by_number(repository, model):
    instance = repository.load("m", model)
    assert (instance.name, instance.version, instance.number) == ("m", "1", 1)
    assert key_asked(repository, "m") == ("1", 9)
    assert key_asked(repository, 1) == ("1", 9)


def test_it_is_warmed_with_the_arrays_that_come_from_a_network(repository, opened, model):
    repository.load("m", model)
    assert opened[0].warmed[0] == "warm"
    runs = set(opened[0].warmed[1:])
    assert {("uint8", 1, False), ("uint8", 4, False), ("float32", 1, False), ("int64", 1, False)} <= runs
    assert repository.list_serving()[0].seconds_per_image > 0
    assert opened[0].darkest > 0  # zeros are skipped, and would seem quick


def test_slow_fidelities_are_not_run_to_warm_them(opened, double, model):
    class Slow(double):
        fidelity = "device"

    repository = Repository(Slow)
    instance = repository.load("m", model)
    assert instance.executor.warmed == ["warm"]
    assert instance.seconds_per_image == float("inf")


def test_models_on_one_device_have_their_turns(double, model, other_model):
    at_work, together = threading.Lock(), []

    class OnDevice(double):
        fidelity = "device"

        def warm(self):
            self.run(np.zeros((1, 20), np.uint8))

        def run(self, inputs, keys=None):
            together.append(not at_work.acquire(blocking=False))
            threading.Event().wait(0.002)
            at_work.release()
            return super().run(inputs, keys)

    repository = Repository(OnDevice)
    repository.load("m", model)
    repository.load("n", other_model)
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(key_asked, repository, "mn"[each % 2], each) for each in range(12)]
        asked.append(pool.submit(repository.load, "m", other_model))
        assert [each.result()[1] for each in asked[:-1]] == list(range(12))
        asked[-1].result()
    assert len(together) == 3 + 12
    assert not any(together)


def test_a_long_batch_gives_others_their_turns_between_its_pieces(repository, opened, model, wait_for):
    instance = repository.load("m", model)
    inputs = np.arange(5 * 20, dtype=np.uint8).reshape(5, 20)
    whole = instance.run(inputs, range(5))
    instance.seconds_per_image = 0.02  # two images a piece
    opened[0].warmed.clear()
    opened[0].gate.clear()
    with ThreadPoolExecutor(2) as pool:
        long = pool.submit(instance.run, inputs, range(5))
        assert opened[0].started.wait(60)
        short = pool.submit(instance.run, inputs[:1].astype(np.float32), [7])
        wait_for(instance.lock._queue_lock.locked)
        opened[0].gate.set()
        assert short.result().scores[0, 0] == 7
    assert [each[:2] for each in opened[0].warmed] == [
        ("uint8", 2),
        ("float32", 1),
        ("uint8", 2),
        ("uint8", 1),
    ]
    assert long.result().scores.tolist() == whole.scores.tolist()
    assert (long.result().cycles, dict(long.result().counters)) == (whole.cycles, dict(whole.counters))


def test_the_old_version_goes_on_until_its_last_request_is_answered(repository, opened, model, other_model):
    repository.load("m", model)
    first, second = repository.acquire("m"), repository.acquire("m", "1")
    repository.load("m", other_model)
    assert key_asked(repository) == ("2", 9)
    with first as instance:
        assert instance.version == "1"
        assert instance.run(np.zeros((1, 20), np.uint8), [5]).scores[0, 0] == 5
    assert not opened[0].closed
    second.release()
    assert opened[0].closed
    assert not opened[1].closed


def test_an_idle_model_is_closed_at_once(repository, opened, model):
    repository.load("m", model)
    repository.load("m", model)
    assert [each.closed for each in opened] == [True, False]
    repository.close()
    assert [each.closed for each in opened] == [True, True]


def test_an_unloaded_model_is_unknown_and_can_come_back_with_its_number(repository, model):
    repository.load("m", model)
    repository.load("n", model)
    repository.unload("m")
    with pytest.raises(UnknownModel, match=r"no model 'm' is loaded\. There is n \(version 1\)"):
        repository.acquire("m")
    with pytest.raises(UnknownModel):
        repository.acquire(1)
    with pytest.raises(UnknownModel):
        repository.unload("m")
    again = repository.load("m")
    assert (again.version, again.number) == ("2", 1)
    assert dict(repository.get_numbers()) == {"m": 1, "n": 2}


def test_versions_that_are_gone_are_refused(repository, model):
    repository.load("m", model)
    repository.load("m", model)
    with pytest.raises(UnknownModel, match="no version '1' of model 'm'"):
        repository.acquire("m", "1")
    with repository.acquire("m", "2") as instance:
        assert instance.version == "2"


def test_what_cannot_be_loaded_leaves_the_old_one_in_service(opened, double, model, tmp_path):
    damaged = tmp_path / "m.lng"
    save_model(model, damaged)
    repository = Repository(opened, tmp_path)
    repository.load("m")
    content = damaged.read_bytes()
    damaged.write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelFileError):
        repository.load("m")
    damaged.unlink()
    with pytest.raises(ModelFileError, match="there is no file"):
        repository.load("m")
    assert key_asked(repository) == ("1", 9)


def test_a_model_that_fails_to_warm_is_closed(double, model):
    made = []

    class Broken(double):
        def warm(self):
            made.append(self)
            if len(made) < 3:
                raise InputError("no", hint="none")

    repository = Repository(Broken)
    for _ in range(2):
        with pytest.raises(InputError):
            repository.load("m", model)
    assert made[0].closed
    assert repository.list_serving() == ()
    assert not repository.get_numbers()
    assert (repository.load("m", model).version, repository.get_numbers()) == ("1", {"m": 1})


def test_files_of_the_directory_are_listed_and_loaded_by_name(opened, model, tmp_path):
    for name in ("a.lng", "b.lng", "-odd.lng", "notes.txt"):
        save_model(model, tmp_path / name)
    repository = Repository(opened, tmp_path)
    repository.load("b")
    repository.load("c", model)
    found = [(each.name, each.version, each.is_ready) for each in repository.list_models()]
    assert found == [("a", "", False), ("b", "1", True), ("c", "1", True)]
    with pytest.raises(UnknownModel):
        repository.load("d")


@pytest.mark.parametrize("name", ["", "../secret", "a/b", ".hidden", "a b", "x" * 101, "ä"])
def test_names_cannot_lead_out_of_the_directory(repository, model, name):
    with pytest.raises(ServingError, match="is not a valid name for a model"):
        repository.load(name, model)


def test_swapping_under_load_loses_no_request(repository, opened, model, other_model):
    repository.load("m", model)
    stop = threading.Event()
    versions = queue.SimpleQueue()

    def ask(key):
        while not stop.is_set():
            version, found = key_asked(repository, key=key)
            assert found == key
            versions.put(version)

    with ThreadPoolExecutor(3) as threads:
        asked = [threads.submit(ask, key) for key in range(3)]
        try:
            for each in (other_model, model) * 5:
                new = repository.load("m", each).version
                while versions.get(timeout=20) != new:
                    pass
        finally:
            stop.set()
        assert [each.result() for each in asked] == [None] * 3
    assert [each.closed for each in opened] == [True] * 10 + [False]
    assert repository.list_serving()[0].users == 0

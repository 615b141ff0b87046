"""The loader as torch sees it: epochs, state, seeds, processes of a `DataLoader`, profiles and decisions."""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
import threading
from functools import cache

import pytest
from libraries import library, skip_without

torch = library("torch", reason="needs lightbed[offload]")
data = library("torch.utils.data")

from testbed import offload
from testbed.errors import OffloadError
from testbed.offload import Candidate, Metrics, decide, serialisation
from testbed.offload.engine import ThreadEngine
from testbed.offload.feed import Rule
from testbed.offload.profile import Bench, Settings, Trial, read_trainer_cpu_ns

pytestmark = pytest.mark.torch


@cache
def fifty():
    return data.TensorDataset(torch.arange(50))


def plus_noise(element):
    (number,) = element
    return number, torch.rand(3)


def first_of(element):
    return element[0]


def loader_of(rule=None, **options):
    options = {"batch_size": 8, "engine": ThreadEngine(2), "rule": rule or Rule("p3", 0.5)} | options
    return offload.OffloadedLoader(fifty(), options.pop("transform", first_of), **options)


def flat(batches):
    return [int(number) for batch in batches for number in batch]


@pytest.mark.parametrize("candidate", ["p1", "p2", "p3", None])
def test_every_index_once_an_epoch_and_each_epoch_in_another_order(candidate):
    loader = loader_of(Rule(candidate, 0.6), seed=1)
    first, second = flat(loader), flat(loader)
    loader.close()
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    assert len(loader) == 7


def test_a_seed_makes_order_and_draws_the_same_wherever_they_are_made():
    def epoch(rule):
        loader = loader_of(rule, transform=plus_noise, seed=4)
        torch.manual_seed(9)
        found = [torch.cat([numbers[:, None], noise], 1) for numbers, noise in loader]
        loader.close()
        return torch.cat(found), torch.rand(1)

    here, drawn = epoch(Rule())
    for candidate in ("p1", "p2", "p3"):
        found, after = epoch(Rule(candidate, 0.7))
        assert torch.equal(found, here)
        assert torch.equal(after, drawn), "the trainer's own generator is where it would be"


@pytest.mark.parametrize("candidate", ["p2", "p3"])
def test_a_training_goes_on_where_its_state_was_saved(candidate):
    whole = loader_of(Rule(candidate, 0.5), seed=2)
    batches = [flat([batch]) for _ in range(2) for batch in whole]
    whole.close()
    broken_off = loader_of(Rule(candidate, 0.5), seed=2)
    list(broken_off)
    running = iter(broken_off)
    seen = [flat([next(running)]) for _ in range(3)]
    state = json.loads(json.dumps(broken_off.state_dict()))
    running.close()
    broken_off.close()
    resumed = loader_of(seed=2)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    rest = [flat([batch]) for batch in resumed]
    assert seen + rest == batches[7:]
    assert sorted(flat(resumed)) == list(range(50)), "the next epoch is whole"
    resumed.close()


def test_an_epoch_that_is_left_begins_again():
    loader = loader_of(seed=3)
    for _ in loader:
        break
    assert sorted(flat(loader)) == list(range(50))
    loader.close()


def test_a_state_of_another_loader_is_refused():
    loader = loader_of()
    with pytest.raises(
        OffloadError, match="this state has version 1 and batches of 4, but the loader needs version 1"
    ):
        loader.load_state_dict({"version": 1, "batch_size": 4})
    loader.close()


def test_the_last_batch_may_be_dropped():
    loader = loader_of(drop_last=True, shuffle=False)
    assert flat(loader) == list(range(48))
    loader.close()


def test_torchs_own_loader_iterates_it():
    loader = loader_of()
    assert sorted(flat(data.DataLoader(loader, batch_size=None))) == list(range(50))
    loader.close()


@pytest.mark.process
@pytest.mark.socket
def test_processes_of_torchs_loader_take_their_shares():
    loader = loader_of(engine=lambda: ThreadEngine(1))
    for _ in range(2):
        found = flat(data.DataLoader(loader, batch_size=None, num_workers=2))
        assert sorted(found) == list(range(50))
    loader.close()


def test_options_that_exclude_each_other():
    with pytest.raises(OffloadError, match="a scheduler or an engine, not both"):
        offload.OffloadedLoader(fifty(), batch_size=8, scheduler="tcp://127.0.0.1:1", engine=ThreadEngine())
    with pytest.raises(OffloadError, match="batch_size 0"):
        offload.OffloadedLoader(fifty(), batch_size=0)


# ------------------------------------------------------------------------------- samplers and streams
CANDIDATES = ["p1", "p2", "p3", None]


@pytest.mark.parametrize("candidate", CANDIDATES)
def test_a_sampler_says_which_indices_come(candidate):
    loader = loader_of(Rule(candidate, 0.5), sampler=[3, 3, 1, 40, 2, 9], batch_size=4)
    assert [batch.tolist() for batch in loader] == [[3, 3, 1, 40], [2, 9]]
    assert len(loader) == 2
    loader.close()
    loader = loader_of(
        Rule(candidate, 0.5), sampler=data.RandomSampler(fifty(), num_samples=20), drop_last=True
    )
    found = flat(loader)
    assert (len(found), len(loader)) == (16, 2)
    assert found != flat(loader)
    loader.close()


@pytest.mark.parametrize("candidate", CANDIDATES)
def test_a_sampler_of_batches_says_how_large_they_are(candidate):
    batches = [[1, 2, 3], [4], [5, 6], [7, 8, 9, 10]]
    loader = loader_of(Rule(candidate, 0.5), batch_sampler=batches, batch_size=None)
    assert [batch.tolist() for batch in loader] == batches
    assert len(loader) == 4
    running = iter(loader)
    assert [next(running).tolist() for _ in range(2)] == batches[:2]
    state = json.loads(json.dumps(loader.state_dict()))
    running.close()
    loader.load_state_dict(state)
    assert loader.state_dict() == state
    assert [batch.tolist() for batch in loader] == batches[2:]
    assert [batch.tolist() for batch in loader] == batches
    loader.close()


@pytest.mark.parametrize("candidate", CANDIDATES)
def test_trainers_with_a_distributed_sampler_share_each_epoch(candidate):
    loaders = [
        loader_of(
            Rule(candidate, 0.5), sampler=data.DistributedSampler(fifty(), 2, rank, seed=3), batch_size=5
        )
        for rank in range(2)
    ]
    epochs = [[flat(loader) for loader in loaders] for _ in range(2)]
    for first, second in epochs:
        assert sorted(first + second) == list(range(50))
    assert epochs[0] != epochs[1]
    loaders[0].set_epoch(0)
    assert flat(loaders[0]) == epochs[0][0]
    for loader in loaders:
        loader.close()


@pytest.mark.parametrize("candidate", ["p2", "p3"])
def test_a_training_goes_on_in_the_order_that_a_sampler_drew(candidate):
    """Its generator draws another one the next time."""
    loader = loader_of(Rule(candidate, 0.5), sampler=data.RandomSampler(fifty()))
    running = iter(loader)
    seen = [flat([next(running)]) for _ in range(3)]
    state = json.loads(json.dumps(loader.state_dict()))
    rest = [flat([batch]) for batch in running]
    loader.close()
    resumed = loader_of(sampler=data.RandomSampler(fifty()))
    resumed.load_state_dict(state)
    assert [flat([batch]) for batch in resumed] == rest
    assert sorted(number for batch in seen + rest for number in batch) == list(range(50))
    assert sorted(flat(resumed)) == list(range(50))
    resumed.close()


@pytest.mark.process
@pytest.mark.socket
def test_processes_of_torchs_loader_share_the_order_of_a_sampler():
    loader = loader_of(engine=lambda: ThreadEngine(1), sampler=data.RandomSampler(fifty()))
    for _ in range(2):
        assert sorted(flat(data.DataLoader(loader, batch_size=None, num_workers=2))) == list(range(50))
    loader.close()


@cache
def stream_class():
    class Stream(data.IterableDataset):
        """Numbers that come one after the other; processes of a loader take turns."""

        def __init__(self):
            self.lock = threading.Lock()  # it is read here, and need not serialisation
            self.reads = 0

        def __iter__(self):
            info = data.get_worker_info()
            for number in range(info.id if info else 0, 50, info.num_workers if info else 1):
                self.reads += 1
                yield torch.tensor([number])

    return Stream


def stream_of(rule, **options):
    options = {"batch_size": 8, "engine": ThreadEngine(2), "transform": first_of} | options
    return offload.OffloadedLoader(stream_class()(), rule=rule, **options)


@pytest.mark.parametrize("rule", [Rule(), Rule("p1", 0.5), Rule("p1", 1.0)])
def test_a_stream_is_read_here_and_transformed_by_workers(rule):
    loader = stream_of(rule)
    for _ in range(2):
        assert flat(loader) == list(range(50))
        assert loader.counts.remote_count == 50 * rule.ratio
    running = iter(loader)
    seen = [flat([next(running)]) for _ in range(3)]
    state = loader.state_dict()
    running.close()
    loader.load_state_dict(state)
    assert flat(seen) + flat(loader) == list(range(50))
    with pytest.raises(TypeError):
        len(loader)
    loader.close()
    loader = stream_of(rule, drop_last=True)
    assert flat(loader) == list(range(48))
    loader.close()


def test_a_stream_is_read_no_further_than_is_asked_for():
    """Two batches for each of two workers, and two of the thread here; without any, one element at a time."""
    loader = stream_of(Rule("p1", 0.5), batch_size=2)
    running = iter(loader)
    next(running)
    assert loader.pipeline.dataset.reads <= 2 + 2 * 2 * 2 + 2 * 2
    running.close()
    loader.close()
    loader = stream_of(Rule(), batch_size=2, engine=None, seed=1)
    next(running := iter(loader))
    assert loader.pipeline.dataset.reads <= 3
    running.close()
    loader.close()


def test_draws_of_a_stream_are_the_same_wherever_they_are_made():
    def epoch(rule):
        loader = stream_of(rule, transform=plus_noise, seed=4)
        found = torch.cat([torch.cat([numbers[:, None], noise], 1) for numbers, noise in loader])
        loader.close()
        return found

    assert torch.equal(epoch(Rule()), epoch(Rule("p1", 0.7)))


@pytest.mark.process
@pytest.mark.socket
def test_processes_of_torchs_loader_read_a_stream_as_it_shares_itself():
    loader = stream_of(Rule("p1", 0.5), engine=lambda: ThreadEngine(1))
    assert sorted(flat(data.DataLoader(loader, batch_size=None, num_workers=2))) == list(range(50))
    loader.close()


def test_a_stream_is_measured():
    loader = stream_of(Rule(), batch_size=4)
    profile = loader.tune(lambda _batch: None, Settings(batches=6, rounds=2, warm_up=1))
    assert set(profile.metrics.candidates) == {"p1"}
    assert profile.profiling_share == 0
    assert flat(loader) == list(range(50))
    loader.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": [1], "shuffle": True}, "a sampler has its own order: leave out shuffle"),
        ({"batch_sampler": [[1]]}, "batch_sampler makes whole batches"),
        ({"batch_size": None}, "batch_size None: give 1 or more"),
    ],
)
def test_options_of_order_that_exclude_each_other(options, message):
    with pytest.raises(OffloadError, match=message):
        loader_of(**options)


def test_a_stream_has_its_own_order():
    with pytest.raises(OffloadError, match="a stream has its own order"):
        stream_of(Rule(), shuffle=True)
    loader = stream_of(Rule("p3", 0.5))
    with pytest.raises(OffloadError, match="p3 reads on the workers, but a stream is read here: use p1"):
        list(loader)
    loader.close()


# ------------------------------------------------------------------------------------------ profiles
def planned(monkeypatch, rates, cpu=None):
    """Let measurements find these rates: of None (the model alone), of each candidate, of a rule by its ratio."""
    cpu = cpu or {}

    def trial(_bench, rule):
        name = "model" if rule is None else rule.candidate or "local"
        name = f"{name}@" if rule and 0 < rule.ratio < 1 else name
        return Trial(rates[name], 0.5 if name == "local" else 0.1, cpu.get(name, 0.0))

    monkeypatch.setattr(Bench, "run_trial", trial)


RATES = {"model": 100.0, "local": 50.0, "p1": 40.0, "p2": 70.0, "p3": 65.0, "p2@": 95.0}
CPU = {"model": 0.001, "local": 0.021, "p1": 0.009, "p2": 0.005, "p3": 0.003}


def test_tune_measures_decides_and_applies(monkeypatch, tmp_path):
    """The second vector of the algorithm: p2 at 0.7; processor time of the step itself is taken off."""
    planned(monkeypatch, RATES, CPU)
    loader = loader_of()
    profile = loader.tune(print, Settings(store=tmp_path))
    assert (loader.rule.candidate, loader.rule.ratio) == ("p2", 0.7)
    assert profile.metrics.pcycle == pytest.approx(0.02)
    assert profile.metrics.estimate_overhead("p1") == pytest.approx(0.4)
    document = profile.as_json()
    assert {
        key: document[key] for key in ("gthp", "lthp", "choice", "ratio", "stall_before", "stall_after")
    } == {
        "gthp": 100.0,
        "lthp": 50.0,
        "choice": "p2",
        "ratio": 0.7,
        "stall_before": 0.5,
        "stall_after": 0.1,
    }
    assert 0 < document["profiling_share"] < 1
    loader.close()
    stored = loader_of()
    monkeypatch.setattr(Bench, "run_trial", lambda *_: pytest.fail("measured again"))
    again = stored.tune(print, Settings(store=tmp_path))
    assert (again.decision, again.profiling_share) == (profile.decision, 0.0)
    with pytest.raises(pytest.fail.Exception, match="measured again"):
        stored.tune(len, Settings(store=tmp_path))  # another model
    stored.close()


def test_a_promise_that_does_not_come_true_is_taken_back(monkeypatch):
    planned(monkeypatch, RATES | {"p2@": 45.0}, CPU)
    loader = loader_of()
    found = loader.tune(print)
    assert (found.decision.candidate, loader.rule.candidate, found.rate_after) == (None, None, 50.0)
    assert found.decision.reasons[-1] == (
        "measured, p2 at ratio 0.70 delivers 45 and the trainer alone 50: no offload"
    )
    loader.close()


def test_other_jobs_on_the_workers_call_for_another_profile(monkeypatch):
    planned(monkeypatch, RATES, CPU)
    engine = ThreadEngine(2)
    loader = loader_of(engine=engine)
    assert not loader.retune_if_shared(print), "nothing is measured yet"
    loader.tune(print)
    assert not loader.retune_if_shared(print)
    monkeypatch.setattr(engine, "list_jobs", lambda: frozenset({"this", "another"}))
    assert loader.retune_if_shared(print)
    assert not loader.retune_if_shared(print)
    loader.close()


def test_an_epoch_begins_with_another_profile_when_jobs_or_workers_have_changed(monkeypatch):
    """With the step of `tune`; not in the middle of an epoch whose state was loaded, which goes on by its rule."""
    planned(monkeypatch, RATES, CPU)
    engine = ThreadEngine(2)
    loader = loader_of(engine=engine, retune=True)
    loader.tune(print)
    first = loader.profile
    list(loader)
    assert loader.profile is first
    monkeypatch.setattr(engine, "list_jobs", lambda: frozenset({"this", "another"}))
    running = iter(loader)
    next(running)
    second, state = loader.profile, loader.state_dict()
    assert second is not first
    monkeypatch.setattr(engine, "list_workers", lambda: ("this",) * 3)
    loader.load_state_dict(state)
    list(loader)
    assert loader.profile is second
    list(loader)
    assert loader.profile is not second
    loader.close()
    engine = ThreadEngine(2)
    left_alone = loader_of(engine=engine)
    left_alone.tune(print)
    monkeypatch.setattr(engine, "list_workers", lambda: ("this",))
    found = left_alone.profile
    list(left_alone)
    assert left_alone.profile is found


class Training:
    """A model, its optimiser and its scheduler as a script has them, and how many steps they have taken."""

    def __init__(self):
        self.model = torch.nn.Linear(1, 1)
        self.optimiser = torch.optim.Adam(self.model.parameters(), 0.1)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimiser, 10)
        self.steps = 0

    def step(self, batch):
        self.optimiser.zero_grad()
        self.model(batch[:, None].float()).square().mean().backward()
        self.optimiser.step()
        self.scheduler.step()
        self.steps += 1

    def hash(self):
        """Return what training changes."""
        parts = (self.model.state_dict(), self.optimiser.state_dict(), self.scheduler.state_dict())
        return hashlib.sha256(repr((*parts, self.steps, torch.get_rng_state().sum())).encode()).hexdigest()


def closure_of(training):
    """Return a step that reaches what it trains by its closure alone."""
    model, optimiser = training.model, training.optimiser

    def step(batch):
        optimiser.zero_grad()
        model(torch.nn.functional.dropout(batch[:, None].float())).mean().backward()
        optimiser.step()
        training.steps += 1

    return step


in_module = {}


def step_of_module(batch):
    in_module["training"].step(batch)


def name_in_module(training):
    in_module["training"] = training
    return step_of_module


SHORT = Settings(batches=2, rounds=1, warm_up=1)


@pytest.mark.slow
@pytest.mark.parametrize("step_of", [lambda training: training.step, closure_of, name_in_module])
def test_a_measurement_leaves_weights_optimiser_and_generators_alone(step_of):
    """A copy is trained, also when jobs have changed; an epoch of 7 batches is 7 steps."""
    training = Training()
    step, engine = step_of(training), ThreadEngine(2)
    for batch in (torch.ones(8), torch.zeros(8)):
        step(batch)
    before = training.hash()
    loader = loader_of(engine=engine, retune=True)
    loader.tune(step, SHORT)
    assert training.hash() == before
    engine.list_jobs = lambda: frozenset({"this", "another"})
    assert loader.retune_if_shared(settings=SHORT)
    assert training.hash() == before
    engine.list_jobs = lambda: frozenset({"this", "a third"})
    for batch in loader:
        step(batch)
    loader.close()
    assert training.steps == 2 + 7
    assert training.hash() != before


def test_a_measurement_runs_a_step_itself_when_asked():
    """One that is made for measuring; by default no epoch measures anything."""
    taken, engine = [], ThreadEngine(2)
    loader = loader_of(engine=engine)
    loader.tune(taken.append, SHORT)
    assert taken == []
    loader.tune(taken.append, SHORT, copy=False)
    count = len(taken)
    assert count > 0
    engine.list_jobs = lambda: frozenset({"this", "another"})
    list(loader)
    assert len(taken) == count
    loader.close()


def test_a_step_that_cannot_be_copied_is_refused_before_it_runs():
    lock, taken = threading.Lock(), []

    def step(batch):
        with lock:
            taken.append(batch)

    loader = loader_of()
    with pytest.raises(
        OffloadError, match=r"`lock of .*step` is a _thread\.lock .*tune\(other_step, copy=False\)"
    ):
        loader.tune(step, SHORT)
    loader.close()
    assert taken == []


def test_a_model_that_a_class_takes_from_its_module_is_refused(monkeypatch):
    class Trainer:
        def __call__(self, batch):
            global_model(batch)  # noqa: F821 - set below

    monkeypatch.setitem(globals(), "global_model", torch.nn.Linear(1, 1))
    loader = loader_of()
    with pytest.raises(OffloadError, match=r"Trainer\.__call__ takes `global_model` from its module"):
        loader.tune(Trainer(), SHORT)
    loader.close()


def train_global(batch):
    global_model(batch)  # noqa: F821 - set below


class CallsAFunction:
    def __call__(self, batch):
        train_global(batch)


class IsDecorated:
    @torch.enable_grad()
    def __call__(self, batch):
        global_model(batch)  # noqa: F821 - set below


class Inherits(CallsAFunction):
    pass


@pytest.mark.parametrize("kind", [CallsAFunction, IsDecorated, Inherits])
def test_a_model_that_a_class_reaches_through_others_is_refused(monkeypatch, kind):
    monkeypatch.setitem(globals(), "global_model", torch.nn.Linear(1, 1))
    loader = loader_of()
    with pytest.raises(OffloadError, match=r"takes `global_model` from its module"):
        loader.tune(kind(), SHORT)
    loader.close()


INSTALLED = """
import torch

model = torch.nn.Linear(1, 1)
optimiser = torch.optim.SGD(model.parameters(), 0.1)
holder = {"parts": [model]}
mean = torch.zeros(1)


def train(batch, model=None):
    optimiser.step()


def step(batch):
    return train(batch)


def step_of_holder(batch):
    return holder["parts"][0](batch)


def harmless(batch):
    return batch - mean


class Trainer:
    @property
    def weights(self):
        return model.weight

    def __call__(self, batch):
        return self.weights
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Import a module of a package of another environment, which no copy of a step takes along."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "trainer_of_a_package.py").write_text(INSTALLED)
    monkeypatch.syspath_prepend(folder)
    serialisation._list_installed_folders.cache_clear()
    module = importlib.import_module("trainer_of_a_package")
    yield module
    del sys.modules["trainer_of_a_package"]
    serialisation._list_installed_folders.cache_clear()


@pytest.mark.parametrize(
    ("step_of", "name"),
    [
        (lambda module: module.step, "train takes `optimiser`"),
        (lambda module: module.step_of_holder, "step_of_holder takes `holder`"),
        (lambda module: lambda batch: module.step(batch), "train takes `optimiser`"),
        (lambda module: lambda batch: module.model(batch), "takes `model`"),
        (lambda module: lambda batch: module.Trainer()(batch), r"Trainer\.weights takes `model`"),
        (lambda module: module.Trainer(), r"Trainer\.weights takes `model`"),
    ],
)
def test_a_model_that_an_installed_package_takes_from_its_module_is_refused(installed, step_of, name):
    loader = loader_of()
    with pytest.raises(OffloadError, match=name):
        loader.tune(step_of(installed), SHORT)
    loader.close()


def test_constants_of_an_installed_package_are_no_obstacle(installed):
    loader = loader_of()
    assert loader.tune(installed.harmless, SHORT).metrics.workers == 2
    loader.close()


def test_without_workers_nothing_is_offloaded(monkeypatch):
    planned(monkeypatch, RATES, CPU)
    engine = ThreadEngine(2)
    loader = loader_of(engine=engine)
    loader.tune(print)
    monkeypatch.setattr(engine, "list_workers", tuple)
    assert loader.retune_if_shared()
    assert loader.rule.candidate is None
    assert loader.profile.metrics.candidates == {}
    loader.close()


def test_a_pipeline_is_measured_and_what_the_algorithm_says_is_run():
    """With real threads, and a step that takes no time: whatever is decided follows from the metrics."""
    loader = loader_of(batch_size=4)
    ticks = []

    class Narrator:
        def tick(self, done, total, text):
            ticks.append((done, total, text))

    profile = loader.tune(lambda _batch: None, Settings(batches=6, rounds=2, warm_up=1, narrator=Narrator()))
    assert set(profile.metrics.candidates) == {"p1", "p2", "p3"}
    assert profile.metrics.workers == 2
    expected = decide(profile.metrics)
    assert profile.decision.candidate in {expected.candidate, None}
    assert loader.rule.candidate == profile.decision.candidate
    assert ticks[4] == (5, 10, "measured: p3")
    assert sorted(flat(loader)) == list(range(50))
    loader.close()


def test_without_a_transform_there_is_nothing_between_reading_and_sending():
    loader = offload.OffloadedLoader(fifty(), batch_size=4, engine=ThreadEngine())
    profile = loader.tune(lambda _batch: None, Settings(batches=3, rounds=1, warm_up=0))
    assert set(profile.metrics.candidates) == {"p2", "p3"}
    loader.close()


def test_processor_time_of_workers_in_this_process_is_not_the_trainers():
    engine = ThreadEngine()
    before = read_trainer_cpu_ns(engine)
    engine._cpu_ns += 10**15
    assert read_trainer_cpu_ns(engine) < before
    engine.close()


def test_the_policy_is_imported_without_the_loader():
    assert Metrics(1, 1, 1, {"p1": Candidate(1, 1)}).estimate_overhead("p1") == 1
    skip_without("torch")

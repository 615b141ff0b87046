"""The five metrics of a loader and a model's step, measured in turns, and the decision that follows from them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from testbed.errors import OffloadError
from testbed.offload.engine import Engine
from testbed.offload.epoch import Order
from testbed.offload.feed import Feed, Rule, Sides, StreamFeed
from testbed.offload.policy import CANDIDATES, THRESHOLD, Candidate, Decision, Metrics, decide
from testbed.offload.stages import Pipeline, count_of, keep_generators, set_allocator
from testbed.offload.store import Profile, key_of, load_profile, save_profile
from testbed.offload.travel import copy_step

MODEL, LOCAL = "model", "local"
LEAST_CYCLES_S = 1e-9


class Narrator(Protocol):
    """Progress, as the command line shows it."""

    def tick(self, done: int, total: int, text: str) -> None:
        """Note that one of many like steps is done."""
        ...


@dataclass(frozen=True, slots=True)
class Settings:
    """Batches of a measurement in all and before each round, rounds, least speed-up, epochs of the training to come."""

    batches: int = 60
    rounds: int = 3
    warm_up: int = 3
    threshold: float = THRESHOLD
    epochs: int = 10
    store: Path | None = None
    model: str = ""
    narrator: Narrator | None = None

    def __post_init__(self) -> None:
        """Raise `OffloadError` for less than one of what is counted."""
        for name in ("batches", "rounds", "epochs"):
            if getattr(self, name) < 1:
                raise OffloadError(f"{name} {getattr(self, name)}: give 1 or more")
        if self.warm_up < 0:
            raise OffloadError(f"warm_up {self.warm_up}: give 0 or more")


@dataclass(frozen=True, slots=True)
class Trial:
    """One measurement: samples a second, share of the time in which the model waited, processor time of a sample."""

    rate: float
    stall: float
    cpu_s: float


class ProfiledLoader(Protocol):
    """As much of an `OffloadedLoader` as is measured."""

    pipeline: Pipeline
    batch_size: int
    rule: Rule
    is_stream: bool

    def sides(self) -> Sides:
        """Return both sides of the pipeline."""


def profile_loader(
    loader: ProfiledLoader,
    step: Callable[[Any], Any],
    settings: Settings | None = None,
    *,
    copy: bool = True,
) -> Profile:
    """Return the profile of a loader whose batches `step` takes; from the store when it holds one of the same kind.

    What runs is a copy of the step, unless `copy` is false.
    """
    settings = settings or Settings()
    set_allocator()
    sides = loader.sides()
    jobs = sides.remote.jobs() if sides.remote else frozenset()
    slots = sides.remote.slots if sides.remote else 0
    key = key_of(loader.pipeline, settings.model or step, loader.batch_size, slots, len(jobs))
    if settings.store is not None:
        known = load_profile(settings.store, key)
        if known is not None:
            return replace(known, profiling_s=0.0, profiling_share=0.0, jobs=jobs)
    began = time.perf_counter()
    measured = copy_step(step) if copy else step
    count = count_of(loader.pipeline.dataset)
    bench = Bench(sides, loader.batch_size, count, measured, settings, loader.rule, loader.is_stream)
    with keep_generators(), _keep_devices():
        profile = bench.profile()
    spent = time.perf_counter() - began
    training_s = settings.epochs * count / profile.rate_after
    share = spent / (spent + training_s) if count else 0.0  # a stream may go on for ever
    profile = replace(profile, profiling_s=spent, profiling_share=share, key=key, jobs=jobs)
    if settings.store is not None:
        save_profile(settings.store, profile.document(), key)
    return profile


@contextmanager
def _keep_devices() -> Iterator[None]:
    """Give the generators of GPUs the states that they had before the block."""
    torch: Any = sys.modules.get("torch")
    is_used = torch is not None and torch.cuda.is_initialized()
    states = torch.cuda.get_rng_state_all() if is_used else []
    try:
        yield
    finally:
        if is_used:
            torch.cuda.set_rng_state_all(states)


@dataclass
class Bench:
    """Measures variants of one pipeline in turns, so that other load of the machine meets all of them."""

    sides: Sides
    batch_size: int
    count: int
    step: Callable[[Any], Any]
    settings: Settings
    rule: Rule
    is_stream: bool = False
    _cursor: int = 0
    _ticks: int = 0

    def profile(self) -> Profile:
        """Measure, decide, and measure what was decided."""
        names = list(CANDIDATES) if self.sides.remote and self.sides.remote.workers() else []
        if self.is_stream:
            names = names[:1]
        if self.sides.runner.pipeline.transform is None and names:
            names.remove("p1")
        found = self.measure(
            {MODEL: None, LOCAL: Rule()}
            | {name: replace(self.rule, candidate=name, ratio=1.0) for name in names}
        )
        model_s = found[MODEL].cpu_s
        metrics = Metrics(
            gthp=found[MODEL].rate,
            lthp=found[LOCAL].rate,
            pcycle=max(found[LOCAL].cpu_s - model_s, LEAST_CYCLES_S),
            candidates={
                name: Candidate(found[name].rate, max(found[name].cpu_s - model_s, 0.0)) for name in names
            },
            workers=self.sides.remote.slots if self.sides.remote else 1,
        )
        decision = decide(metrics, self.settings.threshold)
        before, after = found[LOCAL], found[LOCAL]
        if decision.candidate is not None:
            rule = replace(self.rule, candidate=decision.candidate, ratio=decision.ratio)
            found = self.measure({LOCAL: Rule(), decision.candidate: rule})
            after = found[decision.candidate]
            if after.rate < found[LOCAL].rate:
                # What was promised has not come, which only a measurement of it can tell.
                why = (
                    f"measured, {decision.candidate} at ratio {decision.ratio:.2f} gives {after.rate:.4g} "
                    f"and all here {found[LOCAL].rate:.4g}: no offload"
                )
                decision = Decision(None, 0.0, 0, (*decision.reasons, why))
                after = found[LOCAL]
        return Profile(metrics, decision, before.stall, after.stall, after.rate, 0.0, 0.0)

    def measure(self, variants: dict[str, Rule | None]) -> dict[str, Trial]:
        """Return the medians of each variant over the rounds; None is the model alone, with one batch."""
        trials: dict[str, list[Trial]] = {name: [] for name in variants}
        for _ in range(self.settings.rounds):
            for name, rule in variants.items():
                trials[name].append(self.trial(rule))
                self._tick(len(variants), name)
        return {
            name: Trial(*(median(getattr(trial, part) for trial in found) for part in Trial.__slots__))
            for name, found in trials.items()
        }

    def trial(self, rule: Rule | None) -> Trial:
        """Return one measurement of a variant, behind some batches that do not count."""
        batches = -(-self.settings.batches // self.settings.rounds)
        if rule is None:
            return self._run(self._cache(batches + self.settings.warm_up))
        feed = self._feed(self.sides, batches + self.settings.warm_up, rule)
        try:
            return self._run(batch for _, batch in feed)
        finally:
            feed.close()

    def _run(self, batches: Iterator[Any]) -> Trial:
        for _ in range(self.settings.warm_up):
            self.step(next(batches))
        taken, waited, began, cpu = 0, 0.0, time.perf_counter(), trainer_cpu_ns(self.sides.remote)
        while True:
            asked = time.perf_counter()
            batch = next(batches, None)
            if batch is None:
                break
            waited += time.perf_counter() - asked
            self.step(batch)
            taken += self.batch_size
        seconds = time.perf_counter() - began
        cpu_s = (trainer_cpu_ns(self.sides.remote) - cpu) / 1e9
        return Trial(taken / seconds, min(1.0, waited / seconds), cpu_s / taken)

    def _cache(self, count: int) -> Iterator[Any]:
        _, batch = next(self._feed(Sides(self.sides.runner), 1, Rule()))
        for _ in range(count):
            yield batch

    def _feed(self, sides: Sides, batches: int, rule: Rule) -> Feed:
        if not self.is_stream:
            return Feed(sides, self._order(batches), rule)
        elements = islice(_repeat(sides.runner.pipeline.dataset), batches * self.batch_size)
        return StreamFeed(sides, elements, self.batch_size, rule)

    def _order(self, batches: int) -> Order:
        """Return the next indices of the dataset, over and over: what was read lately may be in a cache."""
        first, samples = self._cursor, batches * self.batch_size
        self._cursor = (first + samples) % self.count
        return Order([number % self.count for number in range(first, first + samples)], self.batch_size)

    def _tick(self, variants: int, text: str) -> None:
        self._ticks += 1
        if self.settings.narrator:
            total = max(self._ticks, variants * self.settings.rounds)
            self.settings.narrator.tick(self._ticks, total, f"measured: {text}")


def _repeat(stream: Iterable[Any]) -> Iterator[Any]:
    """Yield the elements of a stream, over and over. Raises `OffloadError` when it has none."""
    while True:
        is_empty = True
        for element in stream:
            is_empty = False
            yield element
        if is_empty:
            raise OffloadError("the stream has no elements to measure, or cannot be read twice")


def trainer_cpu_ns(engine: Engine | None = None) -> int:
    """Return the processor time of this process, all threads, and its children, without that of an engine in it."""
    own = time.process_time_ns() - (engine.cpu_ns() if engine else 0)
    ended = os.times()
    return own + int((ended.children_user + ended.children_system) * 1e9) + _children_ns()


def _children_ns() -> int:
    """Return the processor time of children that run, such as processes of a `DataLoader`; 0 where Linux is not.

    Workers that were started here are children, too, of another session.
    """
    total = 0
    for task in Path("/proc/self/task").glob("*/children"):
        for child in task.read_text(encoding="ascii").split():
            try:
                if os.getsid(int(child)) == os.getsid(0):
                    threads = Path(f"/proc/{child}/task").glob("*/schedstat")
                    total += sum(int(thread.read_text(encoding="ascii").split()[0]) for thread in threads)
            except OSError:  # it has just ended
                continue
    return total

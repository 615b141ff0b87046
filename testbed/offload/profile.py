"""Measurement of the five metrics of a loader and a model's step, and the resulting decision."""

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
from testbed.offload.policy import CANDIDATES, MIN_SPEEDUP, Candidate, Decision, Metrics, decide
from testbed.offload.serialisation import copy_step
from testbed.offload.stages import Pipeline, count_elements, fix_allocator_thresholds, preserve_generators
from testbed.offload.store import Profile, load_profile, make_key, save_profile

MODEL_STEP, LOCAL_UNITS = "model", "local"
MIN_CPU_S = 1e-9


class Narrator(Protocol):
    """Display of progress."""

    def tick(self, done: int, total: int, text: str) -> None:
        """Report that `done` of `total` steps are done. `text` describes the last one."""
        ...


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a measurement."""

    batches: int = 60
    """Batches per variant, over all rounds."""
    rounds: int = 3
    warm_up: int = 3
    """Batches before each round that are not measured."""
    threshold: float = MIN_SPEEDUP
    """Smallest speed-up for which to offload."""
    epochs: int = 10
    """Epochs of the training, to relate the profiling time to its length."""
    store: Path | None = None
    """Folder of stored profiles."""
    model: str = ""
    """Name of the model in the key of a stored profile. By default, the code of the step identifies the model."""
    narrator: Narrator | None = None

    def __post_init__(self) -> None:
        """Raise `OffloadError` for batches, rounds or epochs below 1, and for a negative warm-up."""
        for name in ("batches", "rounds", "epochs"):
            if getattr(self, name) < 1:
                raise OffloadError(f"{name} {getattr(self, name)}: give 1 or more")
        if self.warm_up < 0:
            raise OffloadError(f"warm_up {self.warm_up}: give 0 or more")


@dataclass(frozen=True, slots=True)
class Trial:
    """One measurement: samples per second, the share of time in which the model waited, processor time per sample."""

    rate: float
    stall: float
    cpu_s: float


class ProfiledLoader(Protocol):
    """The part of an `OffloadedLoader` that a measurement uses."""

    pipeline: Pipeline
    batch_size: int
    rule: Rule
    is_stream: bool

    def sides(self) -> Sides:
        """Return the trainer's and the workers' side."""


def profile_loader(
    loader: ProfiledLoader,
    step: Callable[[Any], Any],
    settings: Settings | None = None,
    *,
    copy: bool = True,
) -> Profile:
    """Profile a loader with the step that consumes its batches, or return a stored profile with the same key.

    The measurement runs a copy of the step, unless `copy` is False.
    """
    settings = settings or Settings()
    fix_allocator_thresholds()
    sides = loader.sides()
    jobs = sides.worker_engine.list_jobs() if sides.worker_engine else frozenset()
    slot_count = sides.worker_engine.slot_count if sides.worker_engine else 0
    key = make_key(loader.pipeline, settings.model or step, loader.batch_size, slot_count, len(jobs))
    if settings.store is not None:
        stored_profile = load_profile(settings.store, key)
        if stored_profile is not None:
            return replace(stored_profile, profiling_s=0.0, profiling_share=0.0, jobs=jobs)
    start_s = time.perf_counter()
    measured_step = copy_step(step) if copy else step
    element_count = count_elements(loader.pipeline.dataset)
    profiler = Bench(
        sides, loader.batch_size, element_count, measured_step, settings, loader.rule, loader.is_stream
    )
    with preserve_generators(), _preserve_gpu_generators():
        profile = profiler.profile()
    duration_s = time.perf_counter() - start_s
    training_s = settings.epochs * element_count / profile.rate_after
    # `element_count` is 0 for a stream, whose length is unknown.
    profiling_share = duration_s / (duration_s + training_s) if element_count else 0.0
    profile = replace(profile, profiling_s=duration_s, profiling_share=profiling_share, key=key, jobs=jobs)
    if settings.store is not None:
        save_profile(settings.store, profile.as_json(), key)
    return profile


@contextmanager
def _preserve_gpu_generators() -> Iterator[None]:
    """Restore the states of the GPU generators after the block."""
    torch: Any = sys.modules.get("torch")
    is_cuda_used = torch is not None and torch.cuda.is_initialized()
    states = torch.cuda.get_rng_state_all() if is_cuda_used else []
    try:
        yield
    finally:
        if is_cuda_used:
            torch.cuda.set_rng_state_all(states)


@dataclass
class Bench:
    """Measurement of variants of a pipeline in turns, so that other load on the machine affects all variants."""

    sides: Sides
    batch_size: int
    element_count: int
    step: Callable[[Any], Any]
    settings: Settings
    rule: Rule
    is_stream: bool = False
    _cursor: int = 0
    _tick_count: int = 0

    def profile(self) -> Profile:
        """Measure the variants, decide, and measure the decision. Drop the decision if it is slower."""
        names = (
            list(CANDIDATES) if self.sides.worker_engine and self.sides.worker_engine.list_workers() else []
        )
        if self.is_stream:
            names = names[:1]
        if self.sides.runner.pipeline.transform is None and names:
            names.remove("p1")
        trials = self.measure(
            {MODEL_STEP: None, LOCAL_UNITS: Rule()}
            | {name: replace(self.rule, candidate=name, ratio=1.0) for name in names}
        )
        model_cpu_s = trials[MODEL_STEP].cpu_s  # the step's own time, which is not part of the pipeline
        metrics = Metrics(
            gthp=trials[MODEL_STEP].rate,
            lthp=trials[LOCAL_UNITS].rate,
            pcycle=max(trials[LOCAL_UNITS].cpu_s - model_cpu_s, MIN_CPU_S),
            candidates={
                name: Candidate(trials[name].rate, max(trials[name].cpu_s - model_cpu_s, 0.0))
                for name in names
            },
            workers=self.sides.worker_engine.slot_count if self.sides.worker_engine else 1,
        )
        decision = decide(metrics, self.settings.threshold)
        local_trial, chosen_trial = trials[LOCAL_UNITS], trials[LOCAL_UNITS]
        if decision.candidate is not None:
            rule = replace(self.rule, candidate=decision.candidate, ratio=decision.ratio)
            trials = self.measure({LOCAL_UNITS: Rule(), decision.candidate: rule})
            chosen_trial = trials[decision.candidate]
            if chosen_trial.rate < trials[LOCAL_UNITS].rate:
                # Only a measurement shows that the estimate was wrong.
                reason = (
                    f"measured, {decision.candidate} at ratio {decision.ratio:.2f} delivers {chosen_trial.rate:.4g} "
                    f"and the trainer alone {trials[LOCAL_UNITS].rate:.4g}: no offload"
                )
                decision = Decision(None, 0.0, 0, (*decision.reasons, reason))
                chosen_trial = trials[LOCAL_UNITS]
        return Profile(metrics, decision, local_trial.stall, chosen_trial.stall, chosen_trial.rate, 0.0, 0.0)

    def measure(self, variants: dict[str, Rule | None]) -> dict[str, Trial]:
        """Measure each variant in every round, and return the medians. The rule None runs the model on one batch."""
        trials_by_variant: dict[str, list[Trial]] = {name: [] for name in variants}
        for _ in range(self.settings.rounds):
            for name, rule in variants.items():
                trials_by_variant[name].append(self.run_trial(rule))
                self._report_tick(len(variants), name)
        return {
            name: Trial(
                *(
                    median(getattr(trial, field_name) for trial in variant_trials)
                    for field_name in Trial.__slots__
                )
            )
            for name, variant_trials in trials_by_variant.items()
        }

    def run_trial(self, rule: Rule | None) -> Trial:
        """Measure a variant once, after the warm-up."""
        batch_count = -(-self.settings.batches // self.settings.rounds)
        if rule is None:
            return self._measure_batches(self._repeat_one_batch(batch_count + self.settings.warm_up))
        feed = self._make_feed(self.sides, batch_count + self.settings.warm_up, rule)
        try:
            return self._measure_batches(batch for _, batch in feed)
        finally:
            feed.close()

    def _measure_batches(self, batches: Iterator[Any]) -> Trial:
        for _ in range(self.settings.warm_up):
            self.step(next(batches))
        sample_count, waiting_s, start_s, start_cpu_ns = (
            0,
            0.0,
            time.perf_counter(),
            read_trainer_cpu_ns(self.sides.worker_engine),
        )
        while True:
            request_s = time.perf_counter()
            batch = next(batches, None)
            if batch is None:
                break
            waiting_s += time.perf_counter() - request_s
            self.step(batch)
            sample_count += self.batch_size
        duration_s = time.perf_counter() - start_s
        cpu_s = (read_trainer_cpu_ns(self.sides.worker_engine) - start_cpu_ns) / 1e9
        return Trial(sample_count / duration_s, min(1.0, waiting_s / duration_s), cpu_s / sample_count)

    def _repeat_one_batch(self, batch_count: int) -> Iterator[Any]:
        _, batch = next(self._make_feed(Sides(self.sides.runner), 1, Rule()))
        for _ in range(batch_count):
            yield batch

    def _make_feed(self, sides: Sides, batch_count: int, rule: Rule) -> Feed:
        if not self.is_stream:
            return Feed(sides, self._make_order(batch_count), rule)
        elements = islice(_repeat_stream(sides.runner.pipeline.dataset), batch_count * self.batch_size)
        return StreamFeed(sides, elements, self.batch_size, rule)

    def _make_order(self, batch_count: int) -> Order:
        """Return the next indices of the dataset, cyclically. Recently read elements may be cached, so avoid them."""
        first_index, sample_count = self._cursor, batch_count * self.batch_size
        self._cursor = (first_index + sample_count) % self.element_count
        return Order(
            [number % self.element_count for number in range(first_index, first_index + sample_count)],
            self.batch_size,
        )

    def _report_tick(self, variant_count: int, text: str) -> None:
        self._tick_count += 1
        if self.settings.narrator:
            total_ticks = max(self._tick_count, variant_count * self.settings.rounds)
            self.settings.narrator.tick(self._tick_count, total_ticks, f"measured: {text}")


def _repeat_stream(stream: Iterable[Any]) -> Iterator[Any]:
    """Yield the elements of a stream repeatedly. Raises `OffloadError` if a pass over it yields no element."""
    while True:
        is_empty = True
        for element in stream:
            is_empty = False
            yield element
        if is_empty:
            raise OffloadError("the stream has no elements to measure, or cannot be read twice")


def read_trainer_cpu_ns(engine: Engine | None = None) -> int:
    """Return the processor time of this process and its children in ns, without the workers of the engine."""
    own_ns = time.process_time_ns() - (engine.read_cpu_ns() if engine else 0)
    times = os.times()
    return own_ns + int((times.children_user + times.children_system) * 1e9) + _read_children_ns()


def _read_children_ns() -> int:
    """Return the processor time of running children (such as a `DataLoader`'s) in ns, or 0 if this is not Linux.

    Workers that were started here are children too, but they have other sessions and do not count.
    """
    total_ns = 0
    for task in Path("/proc/self/task").glob("*/children"):
        for child in task.read_text(encoding="ascii").split():
            try:
                if os.getsid(int(child)) == os.getsid(0):
                    threads = Path(f"/proc/{child}/task").glob("*/schedstat")
                    total_ns += sum(int(thread.read_text(encoding="ascii").split()[0]) for thread in threads)
            except OSError:  # the child has just ended
                continue
    return total_ns

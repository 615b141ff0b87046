"""Packets for models that take long, or that somebody has just now: answered in a thread, others go on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import time_ns as wall_clock
from typing import TypeVar

import numpy as np

from lightning.errors import InputError, UnknownModel
from lightning.execution.interface import Answers
from lightning.serving.model_instance import ModelInstance
from lightning.serving.packets.codec import (
    Code,
    Datatype,
    Kind,
    Packet,
    answer_message,
    serialise,
    split,
)
from lightning.serving.packets.mmsg import Inbox
from lightning.serving.packets.services import inputs_of
from lightning.serving.repository import Repository

LOG = logging.getLogger(__name__)

Found = TypeVar("Found")

FOREVER = 1 << 63
"""The latest time of a request without a deadline."""
MOST = 256
"""Requests that may wait for their models."""
MOST_US = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Job:
    """A whole request. Times are nanoseconds of the wall clock."""

    sender: bytes
    """As the system calls have addresses."""
    model: int
    request: int
    numbers: bytes
    datatype: int
    arrived: int
    latest: int


class Deferred:
    """Requests that wait for their models, one after the other for each. For the thread of the packets alone."""

    def __init__(self, inbox: Inbox, repository: Repository) -> None:
        self._inbox = inbox
        self._repository = repository
        self._threads: dict[int, ThreadPoolExecutor] = {}
        self._pending: dict[Future[Code | None], Job] = {}
        self._sending = threading.Lock()
        self._closed = False

    def __len__(self) -> int:
        return len(self._pending)

    def take(self, job: Job) -> bool:
        """Answer this when its model has time; whether there is room for it."""
        if len(self._pending) >= MOST:
            return False
        if job.model not in self._threads:
            self._threads[job.model] = ThreadPoolExecutor(1, thread_name_prefix=f"packets-{job.model}")
        self._pending[self._threads[job.model].submit(self._finish, job)] = job
        return True

    def collect(self) -> Iterator[tuple[Job, Code | None]]:
        """Return the jobs that have ended since, each with why it got no answer; refuse those past their deadline."""
        for future, job in list(self._pending.items()):
            if wall_clock() > job.latest and future.cancel():
                self._refuse(job, Code.LATE)
            elif not future.done():
                continue
            del self._pending[future]
            yield job, Code.LATE if future.cancelled() else future.result()

    def close(self) -> None:
        """Send nothing more, though a model may still be at work."""
        with self._sending:
            self._closed = True
        for each in self._threads.values():
            each.shutdown(wait=False, cancel_futures=True)

    def _finish(self, job: Job) -> Code | None:
        code = try_work(lambda: self._work(job), job.model, job.request)
        if code is not None:
            self._refuse(job, code)
        return code

    def _work(self, job: Job) -> Code | None:
        with self._repository.acquire(job.model) as instance:
            answers = in_turn(instance, job)
        return Code.LATE if answers is None else self._answer(job, answers)

    def _answer(self, job: Job, answers: Answers) -> Code | None:
        message = answer_message(answers.scores, answers.cycles)
        elapsed = measure_elapsed_us(job.arrived)
        packets = split(
            Kind.ANSWER, job.model, job.request, message, time_us=elapsed, datatype=Datatype.FLOAT32
        )
        sent = [self._send(job, each) for each in packets]
        return None if all(sent) else Code.FAILED

    def _refuse(self, job: Job, code: Code) -> None:
        self._send(
            job,
            Packet(Kind.REFUSAL, job.model, job.request, time_us=measure_elapsed_us(job.arrived), code=code),
        )

    def _send(self, job: Job, packet: Packet) -> bool:
        with self._sending:
            return not self._closed and self._inbox.send(serialise(packet), job.sender)


def in_turn(instance: ModelInstance, job: Job) -> Answers | None:
    """Return what the model answers, or None where that would be too late. Raises `InputError`."""
    inputs = inputs_of(instance, job.numbers, job.datatype)
    left = (job.latest - wall_clock()) / 1e9 if job.latest < FOREVER else -1
    if job.latest < wall_clock() or not instance.lock.acquire(timeout=left):
        return None
    try:
        answers = instance.executor.run(inputs, np.array([job.request], np.uint64))
    finally:
        instance.lock.release()
    return answers if wall_clock() <= job.latest else None


def try_work(work: Callable[[], Found], model: int, request: int) -> Found | Code:
    """Return what this gives, or the code of the refusal that its error ends in.

    Faults of a model are written to the log.
    """
    try:
        return work()
    except UnknownModel:
        return Code.UNKNOWN_MODEL
    except InputError:
        return Code.INPUT
    except Exception:
        LOG.exception("model %d failed at request %d", model, request)
        return Code.FAILED


def measure_elapsed_us(arrived: int) -> int:
    """Since then; 0 where the wall clock has been set back."""
    return min(max(wall_clock() - arrived, 0) // 1000, MOST_US)

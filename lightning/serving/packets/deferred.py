"""Requests for slow or busy models. Another thread answers them, so that other requests need not wait."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import time_ns as wall_clock_ns
from typing import TypeVar

import numpy as np

from lightning.errors import InputError, UnknownModel
from lightning.execution.interface import Answers
from lightning.serving.model_instance import ModelInstance
from lightning.serving.packets.codec import (
    Datatype,
    Kind,
    Packet,
    RefusalCode,
    encode_answer,
    serialise,
    split,
)
from lightning.serving.packets.mmsg import Inbox
from lightning.serving.packets.services import decode_inputs
from lightning.serving.repository import Repository

LOG = logging.getLogger(__name__)

Result = TypeVar("Result")

NO_DEADLINE = 1 << 63
"""`Job.deadline_ns` of a request without a deadline."""
MAX_PENDING = 256
"""Maximum number of requests that may wait for their models."""
MAX_ELAPSED_US = 0xFFFFFFFF
"""Largest time that the header of a packet can hold."""


@dataclass(frozen=True, slots=True)
class Job:
    """A complete request. Times are nanoseconds of the wall clock."""

    sender: bytes
    """Address in the form of the system calls (struct sockaddr_in)."""
    model_number: int
    request_number: int
    input_bytes: bytes
    datatype: int
    arrival_ns: int
    deadline_ns: int


class DeferredRequests:
    """Requests that wait for their models, with a thread per model. Only the packet loop's thread may call it."""

    def __init__(self, inbox: Inbox, repository: Repository) -> None:
        self._inbox = inbox
        self._repository = repository
        self._executors: dict[int, ThreadPoolExecutor] = {}
        self._pending: dict[Future[RefusalCode | None], Job] = {}
        self._send_lock = threading.Lock()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._pending)

    def submit(self, job: Job) -> bool:
        """Queue a job for its model; return False if too many are waiting."""
        if len(self._pending) >= MAX_PENDING:
            return False
        if job.model_number not in self._executors:
            self._executors[job.model_number] = ThreadPoolExecutor(
                1, thread_name_prefix=f"packets-{job.model_number}"
            )
        self._pending[self._executors[job.model_number].submit(self._run_job, job)] = job
        return True

    def collect(self) -> Iterator[tuple[Job, RefusalCode | None]]:
        """Refuse jobs past their deadline; yield (job, refusal code or None) for each job that has ended."""
        for future, job in list(self._pending.items()):
            if wall_clock_ns() > job.deadline_ns and future.cancel():
                self._refuse(job, RefusalCode.LATE)
            elif not future.done():
                continue
            del self._pending[future]
            yield job, RefusalCode.LATE if future.cancelled() else future.result()

    def close(self) -> None:
        """Send nothing from now on. A model may still be computing."""
        with self._send_lock:
            self._is_closed = True
        for executor in self._executors.values():
            executor.shutdown(wait=False, cancel_futures=True)

    def _run_job(self, job: Job) -> RefusalCode | None:
        code = run_or_refuse(lambda: self._compute_answer(job), job.model_number, job.request_number)
        if code is not None:
            self._refuse(job, code)
        return code

    def _compute_answer(self, job: Job) -> RefusalCode | None:
        with self._repository.acquire(job.model_number) as instance:
            answers = run_before_deadline(instance, job)
        return RefusalCode.LATE if answers is None else self._answer(job, answers)

    def _answer(self, job: Job, answers: Answers) -> RefusalCode | None:
        message = encode_answer(answers.scores, answers.cycles)
        elapsed_us = measure_elapsed_us(job.arrival_ns)
        packets = split(
            Kind.ANSWER,
            job.model_number,
            job.request_number,
            message,
            time_us=elapsed_us,
            datatype=Datatype.FLOAT32,
        )
        accepted_flags = [self._send(job, packet) for packet in packets]
        return None if all(accepted_flags) else RefusalCode.FAILED

    def _refuse(self, job: Job, code: RefusalCode) -> None:
        self._send(
            job,
            Packet(
                Kind.REFUSAL,
                job.model_number,
                job.request_number,
                time_us=measure_elapsed_us(job.arrival_ns),
                code=code,
            ),
        )

    def _send(self, job: Job, packet: Packet) -> bool:
        with self._send_lock:
            return not self._is_closed and self._inbox.send(serialise(packet), job.sender)


def run_before_deadline(instance: ModelInstance, job: Job) -> Answers | None:
    """Wait for the model and run it. Return None if the deadline passes first. Raise `InputError` for invalid input."""
    inputs = decode_inputs(instance, job.input_bytes, job.datatype)
    timeout_s = (job.deadline_ns - wall_clock_ns()) / 1e9 if job.deadline_ns < NO_DEADLINE else -1
    if job.deadline_ns < wall_clock_ns() or not instance.lock.acquire(timeout_s=timeout_s):
        return None
    try:
        answers = instance.executor.run(inputs, np.array([job.request_number], np.uint64))
    finally:
        instance.lock.release()
    return answers if wall_clock_ns() <= job.deadline_ns else None


def run_or_refuse(work: Callable[[], Result], model_number: int, request_number: int) -> Result | RefusalCode:
    """Call `work`. Return its result, or the refusal code for its error. Log unexpected errors."""
    try:
        return work()
    except UnknownModel:
        return RefusalCode.UNKNOWN_MODEL
    except InputError:
        return RefusalCode.INPUT
    except Exception:
        LOG.exception("model %d failed at request %d", model_number, request_number)
        return RefusalCode.FAILED


def measure_elapsed_us(arrival_ns: int) -> int:
    """Return the time since `arrival_ns` (ns of the wall clock), or 0 if the clock was set back."""
    return min(max(wall_clock_ns() - arrival_ns, 0) // 1000, MAX_ELAPSED_US)

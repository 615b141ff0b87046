"""From a request to an answer: does it fit the model, which noise is its own, and is there time left."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from lightning.errors import DeadlineMissed, InputError, MalformedRequest
from lightning.execution.interface import Answers, Keys
from lightning.serving.http.binary import Array
from lightning.serving.http.v2 import Body, InferRequest, encode_answer
from lightning.serving.model_instance import AT_ONCE_S, ModelInstance

KEYS = 1 << 64
"""Keys are whole numbers below this."""


@dataclass(frozen=True, slots=True)
class Task:
    """One batch for one model."""

    inputs: Array
    keys: Keys
    deadline: float
    """On the clock `time.perf_counter`; infinite without one."""


@dataclass(slots=True)
class FreshKeys:
    """Keys for requests that bring none: every image of a server's life has its own noise."""

    next: int = 0

    def take(self, images: int) -> int:
        """Take as many new keys, and return the first."""
        first = self.next
        self.next = (first + images) % KEYS
        return first


def task_of(request: InferRequest, instance: ModelInstance, fresh: FreshKeys, arrived: float) -> Task:
    """Return the task that a request asks for. Raises `MalformedRequest` and `InputError`."""
    inputs = _input(request, instance)
    first = _first_key(request)
    if first is None:
        first = fresh.take(len(inputs))
    return Task(inputs, keys_from(first, len(inputs)), arrived + timeout_s(request.parameters))


def keys_from(first: int, images: int) -> Keys:
    """Return as many keys, beginning with the first and going round at 2**64.

    >>> keys_from(2**64 - 1, 2).tolist()
    [18446744073709551615, 0]
    """
    if images == 1:
        return np.array([first], np.uint64)
    return np.uint64(first) + np.arange(images, dtype=np.uint64)


def key_of(identity: str) -> int:
    """Return the key of a request's id: the number that it is, or else its hash (BLAKE2b, 8 bytes).

    >>> key_of("17")
    17
    """
    if identity.isascii() and identity.isdigit() and len(identity) < 20:
        return int(identity)
    return int.from_bytes(blake2b(identity.encode(), digest_size=8).digest())


def timeout_s(parameters: Mapping[str, Any]) -> float:
    """Return how long an answer is wanted: `timeout` is in microseconds, as Triton has it.

    Raises `MalformedRequest`.
    """
    timeout = parameters.get("timeout")
    if timeout is None:
        return math.inf
    if type(timeout) is not int or timeout <= 0:
        raise MalformedRequest(
            f"`timeout` is {str(timeout)[:80]!r}", hint="Give a whole number of microseconds, or leave it out"
        )
    return timeout / 1e6


async def run(instance: ModelInstance, task: Task) -> Answers:
    """Run the model: at once where that is quick, else in its thread. Raises `DeadlineMissed`."""
    _in_time(task, instance.seconds_per_image if instance.seconds_per_image < math.inf else 0.0)
    if len(task.inputs) * instance.seconds_per_image > AT_ONCE_S or not instance.lock.acquire(timeout=0):
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(instance.worker, _run_in_turn, instance, task)
    try:
        answers = instance.executor.run(task.inputs, task.keys)
    finally:
        instance.lock.release()
    _in_time(task)
    return answers


def answer_of(request: InferRequest, instance: ModelInstance, task: Task, answers: Answers) -> Body:
    """Return the answer as bytes; its parameters say which noise it had, and what it would cost the datapath."""
    parameters = {
        "fidelity": instance.executor.fidelity,
        "key": int(task.keys[0]),
        "cycles": answers.cycles,
        **instance.marks,
    }
    outputs = {instance.model.network.output: answers.scores}
    return encode_answer(instance.name, instance.version, request, outputs, parameters)


def _run_in_turn(instance: ModelInstance, task: Task) -> Answers:
    _in_time(task)
    answers = instance.run(task.inputs, task.keys)
    _in_time(task)
    return answers


def _in_time(task: Task, needed_s: float = 0.0) -> None:
    late_s = time.perf_counter() + needed_s - task.deadline
    if late_s > 0:
        raise DeadlineMissed(
            f"the answer would come {late_s * 1e6:.0f} µs after its deadline",
            hint="Give a longer `timeout`, smaller batches, or send less at a time",
        )


def _input(request: InferRequest, instance: ModelInstance) -> Array:
    expected = instance.model.network.input
    names = [each.name for each in request.inputs]
    if names != [expected]:
        raise InputError(
            f"inputs are {', '.join(map(repr, names))[:200] or 'none'}; model {instance.name!r} takes {expected!r}",
            hint="Send one input of this name; the model's metadata has its shape",
        )
    return as_bytes(request.inputs[0].array) if instance.prefers_bytes else request.inputs[0].array


def as_bytes(numbers: Array) -> Array:
    """Return the same numbers as bytes, if they all are 0 .. 255 and whole, as of an image; else as they were.

    >>> as_bytes(np.array([0.0, 255.0])).dtype, as_bytes(np.array([0.5])).dtype
    (dtype('uint8'), dtype('float64'))
    """
    if numbers.dtype == np.uint8:
        return numbers
    with np.errstate(invalid="ignore"):  # NaN, which the model refuses
        found = numbers.astype(np.uint8)
    return found if np.array_equal(found, numbers) else numbers


def _first_key(request: InferRequest) -> int | None:
    key = request.parameters.get("key")
    if key is None:
        return key_of(request.id) if request.id else None
    if type(key) is not int or not 0 <= key < KEYS:
        raise MalformedRequest(
            f"`key` is {str(key)[:80]!r}", hint="Give a whole number of 0 .. 2**64 - 1, or leave it out"
        )
    return key

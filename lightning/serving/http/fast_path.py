"""`POST v2/models/{m}[/versions/{v}]/infer` in plain ASGI. A framework would take longer than the inference."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np

from lightning.errors import Busy, DeadlineMissed, InputError, LightningError, MalformedRequest
from lightning.execution.interface import Answers, Keys
from lightning.serving.http.asgi import (
    ClientDisconnected,
    Receive,
    Reply,
    Scope,
    check_content_length,
    make_error_reply,
    make_error_response,
    read_body,
    read_json_length,
)
from lightning.serving.http.binary import Array
from lightning.serving.http.metrics import ServerCounts
from lightning.serving.http.v2 import (
    JSON_LENGTH_HEADER,
    AnswerBody,
    InferRequest,
    decode_request,
    encode_answer,
)
from lightning.serving.model_instance import MAX_INLINE_S, ModelInstance
from lightning.serving.repository import Repository

NOISE_KEY_COUNT = 1 << 64
"""Number of keys. A key is an integer below this."""

MEBIBYTE = 1 << 20
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Task:
    """A batch for a model, with a key for each image."""

    inputs: Array
    noise_keys: Keys
    deadline_s: float
    """Deadline on the clock `time.perf_counter`, in seconds; infinite without a deadline."""


@dataclass(slots=True)
class NoiseKeyCounter:
    """Source of keys for requests without a key, so that every image in the lifetime of a server has its own noise."""

    next_key: int = 0

    def reserve_keys(self, image_count: int) -> int:
        """Reserve `image_count` consecutive keys and return the first key."""
        first_key = self.next_key
        self.next_key = (first_key + image_count) % NOISE_KEY_COUNT
        return first_key


def make_task(
    request: InferRequest, instance: ModelInstance, key_counter: NoiseKeyCounter, arrival_s: float
) -> Task:
    """Return the task of a request that arrived at `arrival_s`.

    Raise `InputError` for other inputs than the model's, `MalformedRequest` for an invalid key or timeout.
    """
    expected_name = instance.model.network.input
    names = [tensor.name for tensor in request.inputs]
    if names != [expected_name]:
        raise InputError(
            (
                f"inputs are {', '.join(map(repr, names))[:200] or 'none'}, but model {instance.name!r} takes "
                f"{expected_name!r}"
            ),
            hint="Send one input with this name; the model's metadata give its shape",
        )
    inputs = convert_to_uint8(request.inputs[0].array) if instance.prefers_bytes else request.inputs[0].array
    first_key = _find_first_key(request)
    if first_key is None:
        first_key = key_counter.reserve_keys(len(inputs))
    return Task(inputs, make_keys(first_key, len(inputs)), arrival_s + read_timeout_s(request.parameters))


def make_keys(first_key: int, image_count: int) -> Keys:
    """Return `image_count` consecutive keys from `first_key`, modulo 2**64.

    >>> make_keys(2**64 - 1, 2).tolist()
    [18446744073709551615, 0]
    """
    if image_count == 1:
        return np.array([first_key], np.uint64)
    return np.uint64(first_key) + np.arange(image_count, dtype=np.uint64)


def derive_key(request_id: str) -> int:
    """Return the key of a request id: its value if it is a number of fewer than 20 digits, else an 8-byte BLAKE2b hash.

    >>> derive_key("17")
    17
    """
    if request_id.isascii() and request_id.isdigit() and len(request_id) < 20:
        return int(request_id)
    return int.from_bytes(blake2b(request_id.encode(), digest_size=8).digest())


def read_timeout_s(parameters: Mapping[str, Any]) -> float:
    """Return the timeout of a request in seconds, infinite without one.

    As in Triton, the parameter is in microseconds. Raise `MalformedRequest` unless it is a positive integer.
    """
    timeout = parameters.get("timeout")
    if timeout is None:
        return math.inf
    if type(timeout) is not int or timeout <= 0:
        raise MalformedRequest(
            f"`timeout` is {str(timeout)[:80]!r}, not a positive integer",
            hint="Give a positive integer number of microseconds, or leave it out",
        )
    return timeout / 1e6


async def run_task(instance: ModelInstance, task: Task) -> Answers:
    """Run the model: on the event loop if it is quick and free, otherwise in the model's thread.

    Raise `DeadlineMissed` if the answer is late, or would be late.
    """
    _check_deadline(task, instance.seconds_per_image if instance.seconds_per_image < math.inf else 0.0)
    # Quick work on the event loop saves a switch of threads. Longer work would block the loop.
    if len(task.inputs) * instance.seconds_per_image > MAX_INLINE_S or not instance.lock.acquire(timeout_s=0):
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(instance.worker, _run_locked, instance, task)
    try:
        answers = instance.executor.run(task.inputs, task.noise_keys)
    finally:
        instance.lock.release()
    _check_deadline(task)
    return answers


def make_answer(request: InferRequest, instance: ModelInstance, task: Task, answers: Answers) -> AnswerBody:
    """Return the encoded answer. Its parameters include the noise key and the cycles of the datapath."""
    parameters = {
        "fidelity": instance.executor.fidelity,
        "key": int(task.noise_keys[0]),
        "cycles": answers.cycles,
        **instance.answer_origin,
    }
    outputs = {instance.model.network.output: answers.scores}
    return encode_answer(instance.name, instance.version, request, outputs, parameters)


def _run_locked(instance: ModelInstance, task: Task) -> Answers:
    _check_deadline(task)
    answers = instance.run(task.inputs, task.noise_keys)
    _check_deadline(task)
    return answers


def _check_deadline(task: Task, needed_s: float = 0.0) -> None:
    late_s = time.perf_counter() + needed_s - task.deadline_s
    if late_s > 0:
        raise DeadlineMissed(
            f"the answer would come {late_s * 1e6:.0f} µs after its deadline",
            hint="Give a longer `timeout`, use smaller batches, or send at a lower rate",
        )


def convert_to_uint8(numbers: Array) -> Array:
    """Return the numbers as uint8 if all are integers from 0 to 255, else unchanged.

    >>> convert_to_uint8(np.array([0.0, 255.0])).dtype, convert_to_uint8(np.array([0.5])).dtype
    (dtype('uint8'), dtype('float64'))
    """
    if numbers.dtype == np.uint8:
        return numbers
    with np.errstate(invalid="ignore"):  # a cast of NaN warns; the model refuses NaN later
        integers = numbers.astype(np.uint8)
    return integers if np.array_equal(integers, numbers) else numbers


def _find_first_key(request: InferRequest) -> int | None:
    key = request.parameters.get("key")
    if key is None:
        return derive_key(request.id) if request.id else None
    if type(key) is not int or not 0 <= key < NOISE_KEY_COUNT:
        raise MalformedRequest(
            f"`key` is {str(key)[:80]!r}, not a valid key",
            hint="Give an integer from 0 to 2**64 - 1, or leave it out",
        )
    return key


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server."""

    max_body_bytes: int = 64 * MEBIBYTE
    """Largest size of a request body."""
    max_in_flight: int = 1024
    """Maximum number of requests that may wait for an answer."""
    max_total_body_bytes: int = 512 * MEBIBYTE
    """Maximum number of received bytes of all waiting requests. Announced bytes do not count."""


@dataclass
class Infer:
    """The inference route of a server. It belongs to one event loop."""

    repository: Repository
    limits: Limits = field(default_factory=Limits)
    counts: ServerCounts = field(default_factory=ServerCounts)
    key_counter: NoiseKeyCounter = field(default_factory=NoiseKeyCounter)
    reserved_bytes: int = 0
    """Received bytes of the bodies of waiting requests."""

    async def make_reply(self, name: str, version: str | None, scope: Scope, receive: Receive) -> Reply:
        """Read a request and return its answer or an error reply. Raise `ClientDisconnected` if the client leaves."""
        arrival_s = time.perf_counter()
        label = (
            ""  # shared by all unknown names, because a counter for each would let clients fill the memory
        )
        self.counts.in_flight_count += 1
        try:
            self._refuse_when_busy()
            with self.repository.acquire(name, version) as instance:
                label = instance.name
                return await self._answer(instance, scope, receive, arrival_s)
        except LightningError as error:
            self._count_failure(label, arrival_s, error.code)
            return make_error_response(error, scope["headers"])
        except ClientDisconnected:
            self._count_failure(label, arrival_s, ClientDisconnected.code)
            raise
        except Exception:
            _logger.exception("a request to model %r failed", label)
            self._count_failure(label, arrival_s, "internal")
            return make_error_reply(
                "internal error of the server; see its log", "internal", 500, scope["headers"]
            )
        finally:
            self.counts.in_flight_count -= 1

    async def _answer(
        self, instance: ModelInstance, scope: Scope, receive: Receive, arrival_s: float
    ) -> Reply:
        own_bytes = 0

        def reserve_bytes(size: int) -> None:
            nonlocal own_bytes
            if self.reserved_bytes + size > self.limits.max_total_body_bytes:
                raise Busy("waiting requests use all the memory reserved for them", hint="Try again later")
            self.reserved_bytes += size
            own_bytes += size

        try:
            limit = check_content_length(scope["headers"], self.limits.max_body_bytes)
            body = await read_body(scope["headers"], receive, limit, reserve_bytes)
            return await self._answer_body(instance, body, read_json_length(scope["headers"]), arrival_s)
        finally:
            self.reserved_bytes -= own_bytes

    async def _answer_body(
        self, instance: ModelInstance, body: bytes, json_length: int | None, arrival_s: float
    ) -> Reply:
        request = decode_request(body, json_length)
        task = make_task(request, instance, self.key_counter, arrival_s)
        answers = await run_task(instance, task)
        answer_body = make_answer(request, instance, task, answers)
        self.counts.count_answer(
            instance.name, time.perf_counter() - arrival_s, len(task.noise_keys), answers.counters
        )
        return _make_reply(answer_body)

    def _refuse_when_busy(self) -> None:
        if self.counts.in_flight_count > self.limits.max_in_flight:
            raise Busy(
                f"{self.limits.max_in_flight} requests are already waiting", hint="Send at a lower rate"
            )

    def _count_failure(self, label: str, arrival_s: float, code: str) -> None:
        self.counts.count_failure(label, time.perf_counter() - arrival_s, code)


def _make_reply(answer_body: AnswerBody) -> Reply:
    if answer_body.json_length is None:
        return Reply(answer_body.content)
    length_header = (JSON_LENGTH_HEADER, b"%d" % answer_body.json_length)
    return Reply(answer_body.content, headers=((b"content-type", b"application/octet-stream"), length_header))

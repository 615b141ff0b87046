"""`POST v2/models/{m}[/versions/{v}]/infer` as bare ASGI: a framework would cost more than the answer."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field

from lightning.errors import Busy, LightningError
from lightning.serving.http.answering import FreshKeys, answer_of, run, task_of
from lightning.serving.http.asgi import (
    Disconnected,
    Receive,
    Reply,
    Scope,
    body_bytes,
    header_length,
    read_body,
    refusal,
    refused,
)
from lightning.serving.http.counts import Counts
from lightning.serving.http.v2 import HEADER_LENGTH, Body, decode_request
from lightning.serving.model_instance import ModelInstance
from lightning.serving.repository import Repository

MEBIBYTE = 1 << 20

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of what a server takes on."""

    body_bytes: int = 64 * MEBIBYTE
    in_flight: int = 1024
    """Requests that may wait for an answer."""
    all_bodies_bytes: int = 512 * MEBIBYTE
    """Of all requests that wait: what came of them, not what they announced."""


@dataclass
class Infer:
    """Requests to models. One for a server; it lives in one event loop."""

    repository: Repository
    limits: Limits = field(default_factory=Limits)
    counts: Counts = field(default_factory=Counts)
    fresh: FreshKeys = field(default_factory=FreshKeys)
    held_bytes: int = 0
    """What came of the bodies of requests that wait."""

    async def reply(self, name: str, version: str | None, scope: Scope, receive: Receive) -> Reply:
        """Read a request and answer it, or say why not. Raises `Disconnected`."""
        arrived = time.perf_counter()
        label = ""  # names that no model has are not counted one by one: clients could fill the memory
        self.counts.in_flight += 1
        try:
            self._refuse_when_busy()
            with self.repository.acquire(name, version) as instance:
                label = instance.name
                return await self._answer(instance, scope, receive, arrived)
        except LightningError as error:
            self._count_failure(label, arrived, error.code)
            return refusal(error, scope["headers"])
        except Disconnected:
            self._count_failure(label, arrived, Disconnected.code)
            raise
        except Exception:
            _logger.exception("a request to model %r failed", label)
            self._count_failure(label, arrived, "internal")
            return refused("the server has a fault; its log says more", "internal", 500, scope["headers"])
        finally:
            self.counts.in_flight -= 1

    async def _answer(self, instance: ModelInstance, scope: Scope, receive: Receive, arrived: float) -> Reply:
        mine = 0

        def take(size: int) -> None:
            nonlocal mine
            if self.held_bytes + size > self.limits.all_bodies_bytes:
                raise Busy("requests that wait hold all memory there is for them", hint="Ask again later")
            self.held_bytes += size
            mine += size

        try:
            limit = body_bytes(scope["headers"], self.limits.body_bytes)
            body = await read_body(scope["headers"], receive, limit, take)
            return await self._answer_body(instance, body, header_length(scope["headers"]), arrived)
        finally:
            self.held_bytes -= mine

    async def _answer_body(
        self, instance: ModelInstance, body: bytes, json_bytes: int | None, arrived: float
    ) -> Reply:
        request = decode_request(body, json_bytes)
        task = task_of(request, instance, self.fresh, arrived)
        answers = await run(instance, task)
        answer = answer_of(request, instance, task, answers)
        self.counts.answered(instance.name, time.perf_counter() - arrived, len(task.keys), answers.counters)
        return _reply_of(answer)

    def _refuse_when_busy(self) -> None:
        if self.counts.in_flight > self.limits.in_flight:
            raise Busy(f"{self.limits.in_flight} requests wait already", hint="Send less at a time")

    def _count_failure(self, label: str, arrived: float, code: str) -> None:
        self.counts.failed(label, time.perf_counter() - arrived, code)


def _reply_of(answer: Body) -> Reply:
    if answer.header_length is None:
        return Reply(answer.content)
    length = (HEADER_LENGTH, b"%d" % answer.header_length)
    return Reply(answer.content, headers=((b"content-type", b"application/octet-stream"), length))

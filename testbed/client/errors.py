"""Errors of the client: the service refuses, cannot be reached, or is asked for what works here alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from lightbed.errors import Who
from testbed.errors import TestbedError


class ServiceUnreachable(TestbedError):
    """The service does not answer, or not as this release expects."""

    code = "service.unreachable"
    who: ClassVar[Who] = "device"


class NotThroughService(TestbedError):
    """A command or an option that works here alone."""

    code = "service.here"
    who: ClassVar[Who] = "user"


class ServiceRefused(TestbedError):
    """A request that the service refused: `problem` is its document, `code` and `who` are those of the error there."""

    code = "service"
    who: ClassVar[Who] = "user"

    def __init__(self, problem: Mapping[str, Any]) -> None:
        self.problem = dict(problem)
        self.status = int(problem.get("status", 0))
        self.code = str(problem.get("code", self.code))
        vars(self)["who"] = problem.get("who", self.who)  # of this error, as the service told it
        super().__init__(str(problem.get("detail", "the service refused")))

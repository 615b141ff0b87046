"""Refusals of the service, and the status of HTTP that each error of the toolkit becomes.

ServiceError
├── NotAuthenticated    no token, or one that is not valid                    (user)
├── NotAllowed          the role, a scope or a lab of the token does not do    (user)
├── TooManyAttempts     ten tokens from one address that were not valid        (user)
├── NotFound            no such lab, run, lease, epoch                         (user)
├── InvalidRequest      a body or a parameter that does not fit                (user)
├── KeyReused           an Idempotency-Key that another request has used       (conflict)
├── StateChanged        If-Match names a state that is over                    (conflict)
├── TooManyRuns         more runs of one user than may wait                    (user)
├── MatchNeeded         a change that must name the state it is for            (user)
└── RunEnded            a run that has ended cannot be cancelled               (conflict)
"""

from __future__ import annotations

from typing import ClassVar

from lightbed.errors import Who
from ocs_drivers.errors import OcsError
from testbed.errors import TestbedError


class ServiceError(TestbedError):
    """Root of the refusals of the service."""

    code = "service"
    who: ClassVar[Who] = "user"


class NotAuthenticated(ServiceError):
    """No token was given, or it is unknown, expired or revoked."""

    code = "service.authentication"


class TooManyAttempts(NotAuthenticated):
    """Too many tokens from one address were not valid: others are not looked at for a minute."""

    code = "service.attempts"


class NotAllowed(ServiceError):
    """The role, a scope or a lab of the token does not allow it."""

    code = "service.role"


class NotFound(ServiceError):
    """A lab, run, lease or epoch that the service does not know."""

    code = "service.unknown"


class InvalidRequest(ServiceError):
    """A body or a parameter that does not fit the interface."""

    code = "service.request"


class KeyReused(ServiceError):
    """An Idempotency-Key that was given with another request before."""

    code = "service.key"
    who = "conflict"


class StateChanged(ServiceError):
    """A change of something that is no longer in the state that If-Match names."""

    code = "service.changed"
    who = "conflict"


class TooManyRuns(ServiceError):
    """A run of somebody of whose runs as many wait as may."""

    code = "service.busy"


class MatchNeeded(ServiceError):
    """A change that must say in If-Match which state it is for."""

    code = "service.match"


class RunEnded(ServiceError):
    """A run that has ended cannot be cancelled."""

    code = "service.ended"
    who = "conflict"


_BY_CODE = {
    "service.authentication": 401,
    "service.role": 403,
    "service.unknown": 404,
    "service.request": 422,
    "service.changed": 412,
    "service.match": 428,
    "service.busy": 429,
    "service.attempts": 429,
    "operation.none": 404,
    "confirm.none": 404,
    "plan.stale": 412,
    "lease.held": 423,
    "maintenance": 423,
    "operation.stopped": 423,
}
_BY_WHO: dict[Who, int] = {"user": 422, "device": 502, "conflict": 409, "unknown": 409, "ourselves": 500}


def status_of(error: type[Exception] | Exception) -> int:
    """Return the status of HTTP for an error: by its code, else by who must act.

    >>> status_of(NotAllowed)
    403
    """
    kind = error if isinstance(error, type) else type(error)
    if not issubclass(kind, TestbedError | OcsError):
        return 500
    return _BY_CODE.get(kind.code) or _BY_WHO[kind.who]

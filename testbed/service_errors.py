"""Refusals of the service.

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

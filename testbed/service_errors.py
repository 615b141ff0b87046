"""Refusals of the service.

ServiceError
├── NotAuthenticated    no token, or one that is not valid                    (user)
│   └── TooManyAttempts ten tokens from one address that were not valid        (user)
├── NotAllowed          the role, a scope or a lab of the token does not do    (user)
├── NotFound            no such lab, run, lease, epoch                         (user)
├── InvalidRequest      a body or a parameter that does not fit                (user)
├── KeyReused           an Idempotency-Key that another request has used       (conflict)
├── StateChanged        If-Match names a state that is over                    (conflict)
├── TooManyRuns         more runs of one user than may wait                    (user)
├── MatchNeeded         a change that must name the state it is for            (user)
└── RunEnded            a run that has ended cannot be cancelled               (conflict)
"""

from __future__ import annotations

from testbed.errors import TestbedError


class ServiceError(TestbedError, code="service", who="user"):
    """Root of the refusals of the service."""


class NotAuthenticated(ServiceError, code="service.authentication"):
    """No token was given, or it is unknown, expired or revoked."""


class TooManyAttempts(NotAuthenticated, code="service.attempts"):
    """Too many tokens from one address were not valid: others are not looked at for a minute."""


class NotAllowed(ServiceError, code="service.role"):
    """The role, a scope or a lab of the token does not allow it."""


class NotFound(ServiceError, code="service.unknown"):
    """A lab, run, lease or epoch that the service does not know."""


class InvalidRequest(ServiceError, code="service.request"):
    """A body or a parameter that does not fit the interface."""


class KeyReused(ServiceError, code="service.key", who="conflict"):
    """An Idempotency-Key that was given with another request before."""


class StateChanged(ServiceError, code="service.changed", who="conflict"):
    """A change of something that is no longer in the state that If-Match names."""


class TooManyRuns(ServiceError, code="service.busy"):
    """A run of somebody of whose runs as many wait as may."""


class MatchNeeded(ServiceError, code="service.match"):
    """A change that must say in If-Match which state it is for."""


class RunEnded(ServiceError, code="service.ended", who="conflict"):
    """A run that has ended cannot be cancelled."""

"""Refusals of the service, sorted by who must act.

ServiceError
├── NotAuthenticated              (user)
│   └── TooManyAttempts           (user)
├── NotAllowed                    (user)
├── NotFound                      (user)
├── InvalidRequest                (user)
├── KeyReused                     (conflict)
├── StateChanged                  (conflict)
├── TooManyRuns                   (user)
├── MatchNeeded                   (user)
└── RunEnded                      (conflict)
"""

from __future__ import annotations

from testbed.errors import TestbedError


class ServiceError(TestbedError, code="service", who="user"):
    """Root of all refusals of the service; this class itself means that a run failed."""


class NotAuthenticated(ServiceError, code="service.authentication"):
    """No token was sent, or it is unknown, expired or revoked."""


class TooManyAttempts(NotAuthenticated, code="service.attempts"):
    """Ten tokens from one address were not valid; the address is refused for a minute."""


class NotAllowed(ServiceError, code="service.role"):
    """The role, the scopes or the labs of the token do not allow the request."""


class NotFound(ServiceError, code="service.unknown"):
    """The service has no such lab, run, lease or epoch."""


class InvalidRequest(ServiceError, code="service.request"):
    """A body or a parameter does not match the interface."""


class KeyReused(ServiceError, code="service.key", who="conflict"):
    """The Idempotency-Key was used for another request."""


class StateChanged(ServiceError, code="service.changed", who="conflict"):
    """If-Match names a state that has changed since."""


class TooManyRuns(ServiceError, code="service.busy"):
    """The user has as many waiting runs as allowed."""


class MatchNeeded(ServiceError, code="service.match"):
    """A change must name in If-Match the state that it is for."""


class RunEnded(ServiceError, code="service.ended", who="conflict"):
    """The run has ended, so it cannot be cancelled."""

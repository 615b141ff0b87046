"""Refusals of the service.

In parentheses: `user` if the user must act, `conflict` if the request conflicts with the current state.

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
    """Base of all refusals of the service. An error of this class itself reports a run that failed."""


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
    """The request has no If-Match, which must name the state that the request changes."""


class RunEnded(ServiceError, code="service.ended", who="conflict"):
    """The run has ended, so it cannot be cancelled."""

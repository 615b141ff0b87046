"""Statuses of HTTP that the errors of the toolkit become."""

from __future__ import annotations

from lightbed.errors import Who
from ocs_drivers.errors import OcsError
from testbed.errors import TestbedError

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

    >>> from testbed.service_errors import NotAllowed
    >>> status_of(NotAllowed)
    403
    """
    kind = error if isinstance(error, type) else type(error)
    if not issubclass(kind, TestbedError | OcsError):
        return 500
    return _BY_CODE.get(kind.code) or _BY_WHO[kind.who]

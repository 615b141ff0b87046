"""Problem documents (RFC 9457) for errors. Status and code come from the error's class."""

from __future__ import annotations

import http
import json
import re
from collections.abc import Mapping
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from lightbed.errors import Who
from ocs_drivers.errors import OcsError
from testbed.errors import PlanStale, TestbedError

MEDIA_TYPE = "application/problem+json"
_SECRET_PATTERN = re.compile(r"lightbed_[0-9a-f]{12}_[0-9a-f]{64}|eyJ[\w-]+\.[\w-]+\.[\w-]*")
_STATUS_BY_CODE = {
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
_STATUS_BY_WHO: dict[Who, int] = {
    "user": 422,
    "device": 502,
    "conflict": 409,
    "unknown": 409,
    "ourselves": 500,
}


def find_status(error: type[Exception] | Exception) -> int:
    """Return the HTTP status of an error, by its code or else by who must act. Other libraries' errors give 500.

    >>> from testbed.service_errors import NotAllowed
    >>> find_status(NotAllowed)
    403
    """
    error_type = error if isinstance(error, type) else type(error)
    if not issubclass(error_type, TestbedError | OcsError):
        return 500
    return _STATUS_BY_CODE.get(error_type.code) or _STATUS_BY_WHO[error_type.who]


def redact_secrets(text: str) -> str:
    """Return a text with tokens replaced by `***`.

    >>> redact_secrets("not lightbed_" + "0" * 12 + "_" + "1" * 64)
    'not ***'
    """
    return _SECRET_PATTERN.sub("***", text)


def make_problem(
    status: int, code: str, who: str, detail: str, instance: str, **extensions: Any
) -> dict[str, Any]:
    """Return a problem document. `extensions` are its extension members."""
    return {
        "type": f"urn:lightbed:error:{code}",
        "title": http.HTTPStatus(status).phrase,
        "status": status,
        "detail": redact_secrets(detail),
        "instance": redact_secrets(instance),
        "code": code,
        "who": who,
        **extensions,
    }


def describe_error(error: Exception, instance: str) -> dict[str, Any]:
    """Return the problem document of an error. For an unexpected error, it contains only the type."""
    if isinstance(error, TestbedError | OcsError):
        extensions: dict[str, Any] = {"hint": error.hint} if error.hint else {}
        if isinstance(error, PlanStale):
            extensions["differences"] = [difference.json() for difference in error.differences]
        return make_problem(find_status(error), error.code, error.who, str(error), instance, **extensions)
    if isinstance(error, RequestValidationError):
        errors = [
            {"where": ".".join(map(str, entry["loc"])), "what": entry["msg"]} for entry in error.errors()[:20]
        ]
        detail = "; ".join(f"{entry['where']}: {entry['what']}" for entry in errors)
        return make_problem(422, "service.request", "user", detail, instance, errors=errors)
    if isinstance(error, HTTPException):
        code = "service.unknown" if error.status_code == 404 else "service.request"
        return make_problem(error.status_code, code, "user", str(error.detail), instance)
    return make_problem(500, "internal", "ourselves", f"{type(error).__name__}; see the log", instance)


def make_response(document: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """Return the HTTP response with a problem document."""
    all_headers = dict(headers or {})
    if document["status"] == 401:
        all_headers.setdefault("WWW-Authenticate", "Bearer")
    body = json.dumps(document, default=str).encode("utf-8", "replace")
    return Response(body, document["status"], all_headers, MEDIA_TYPE)


async def answer_error(request: Request, error: Exception) -> Response:
    """Return the HTTP response to a request whose handler raised an error."""
    headers = getattr(error, "headers", None)
    return make_response(describe_error(error, request.url.path), headers)

"""The ASGI application: routes from the table, problem documents for errors, and the life span of workers and feed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from lightbed.errors import LightbedError
from testbed.service.context import Service
from testbed.service.documents import Problem
from testbed.service.problems import MEDIA_TYPE, answer_error, describe_error, make_response
from testbed.service.route_table import ROUTES, Route

API_VERSION = "2.7.3"
"""Version of the interface. Incompatible changes raise the first number, additions the second, new texts the third."""
log = logging.getLogger(__name__)


def build_app(service: Service) -> FastAPI:
    """Return the application of a service, without the gate in front of it."""

    @asynccontextmanager
    async def run_background_tasks(_app: FastAPI) -> AsyncIterator[None]:
        await service.feed.skip_stored_events()
        feed_task = asyncio.create_task(service.feed.run())
        service.workers.start()
        try:
            yield
        finally:
            service.workers.stop()
            feed_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await feed_task

    app = FastAPI(
        title="lightbed testbed service",
        version=API_VERSION,
        summary="Runs, leases and the state of optical testbeds.",
        lifespan=run_background_tasks,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    for route in ROUTES:
        statuses = {
            *route.problem_statuses,
            *((401, 403, 429) if route.role else ()),
            *(() if route.is_read_only else (400, 413)),
            422,
        }
        app.add_api_route(
            route.path,
            route.handler,
            methods=[route.method],
            status_code=route.status,
            response_model=None,
            response_class=JSONResponse,
            operation_id=f"{route.handler.__name__}",
            responses={status: {"description": "A problem."} for status in sorted(statuses)},
            tags=[route.scope or "service"],
        )
    for error_type in (LightbedError, RequestValidationError, HTTPException):
        app.add_exception_handler(error_type, answer_error)
    app.add_exception_handler(Exception, _answer_fault)
    vars(app)["openapi"] = lambda: describe_interface(app)  # FastAPI's documented way to replace it
    return app


async def _answer_fault(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return make_response(describe_error(error, request.url.path))


def describe_interface(app: FastAPI) -> dict[str, Any]:
    """Return FastAPI's OpenAPI document, with responses, problems and roles added from the table of routes."""
    if app.openapi_schema:
        return app.openapi_schema
    document: dict[str, Any] = FastAPI.openapi(app)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    answer_types: list[type[BaseModel]] = [
        Problem,
        *(route.response_model for route in ROUTES if route.response_model),
    ]
    for answer_type in answer_types:
        schemas[answer_type.__name__] = answer_type.model_json_schema(
            ref_template="#/components/schemas/{model}"
        )
    for route in ROUTES:
        operation = document["paths"][route.path][route.method.lower()]
        for status, response in operation["responses"].items():
            response["content"] = (
                _describe_content(route)
                if int(status) == route.status
                else {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
            )
        operation["security"] = [{"token": []}, *([{}] if route.is_read_only else [])] if route.role else [{}]
        operation["x-role"] = route.role or "none"
        operation["x-scope"] = route.scope
    app.openapi_schema = document
    return document


def _describe_content(route: Route) -> dict[str, Any]:
    if route.content_type != "application/json":
        return {route.content_type: {"schema": {"type": "string"}}}
    schema = (
        {"$ref": f"#/components/schemas/{route.response_model.__name__}"}
        if route.response_model
        else {"type": "object"}
    )
    return {"application/json": {"schema": schema}}


def render_interface(service: Service) -> str:
    """Return the OpenAPI document as text, as the repository stores it."""
    return json.dumps(describe_interface(build_app(service)), indent=1, sort_keys=True) + "\n"

"""The Open Inference Protocol over HTTP: a fast inference route in front of a FastAPI application."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from lightning.errors import LightningError, MalformedRequest
from lightning.serving.http.asgi import (
    ClientDisconnected,
    Reply,
    check_content_length,
    make_error_reply,
    make_error_response,
    read_body,
)
from lightning.serving.http.fast_path import Infer
from lightning.serving.http.metrics import ReadPackets, format_metrics
from lightning.serving.http.v2 import Document, decode_object
from lightning.serving.model_instance import ModelInstance

MODEL_ROUTE = "/v2/models/{model}"
VERSION_ROUTE = MODEL_ROUTE + "/versions/{number}"
REPOSITORY_ROUTE = "/v2/repository/models/{model}"
MAX_DOCUMENT_BYTES = 1 << 16
"""Maximum size of a request body, in bytes, except for inference."""

PROMETHEUS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_PARAMETERS_SCHEMA = {"type": "object", "description": "`timeout` in microseconds, noise `key`"}
_TENSOR_SCHEMA = {
    "type": "object",
    "required": ["name", "shape", "datatype"],
    "properties": {
        "name": {"type": "string"},
        "shape": {"type": "array", "items": {"type": "integer"}},
        "datatype": {"type": "string", "examples": ["UINT8", "FP32"]},
        "parameters": {"type": "object", "description": "`binary_data_size`"},
        "data": {"type": "array", "items": {}, "description": "flat, or nested like `shape`"},
    },
}
_REQUEST_SCHEMA = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "id": {"type": "string"},
        "parameters": _PARAMETERS_SCHEMA,
        "inputs": {"type": "array", "items": _TENSOR_SCHEMA},
        "outputs": {"type": "array", "items": {"type": "object", "required": ["name"]}},
    },
}
INFER_SCHEMA: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": _REQUEST_SCHEMA},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


class Service:
    """The whole application. Inference requests go directly to `Infer`, all others to FastAPI."""

    def __init__(self, infer: Infer, read_packet_counts: ReadPackets | None = None) -> None:
        self.infer = infer
        self.app = build_app(infer, read_packet_counts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request (ASGI application)."""
        if scope["type"] == "http" and scope["method"] == "POST":
            match scope["path"].split("/"):
                case ["", "v2", "models", model, "infer"]:
                    return await self._answer(model, None, scope, receive, send)
                case ["", "v2", "models", model, "versions", number, "infer"]:
                    return await self._answer(model, number, scope, receive, send)
        return await self.app(scope, receive, send)

    async def _answer(
        self, model: str, number: str | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        try:
            reply = await self.infer.make_reply(model, number, scope, receive)
        except ClientDisconnected:
            return
        await reply.send(send)


def build_app(infer: Infer, read_packet_counts: ReadPackets | None = None) -> FastAPI:
    """Return the FastAPI application with all routes. Loading a model runs in a thread, because it is slow."""
    app = FastAPI(
        title="lightning", version=get_toolkit_version(), description="Open Inference Protocol (v2)."
    )
    _add_health(app, infer)
    _add_models(app, infer)
    _add_repository(app, infer)
    app.add_exception_handler(LightningError, _reply_to_error)
    app.add_exception_handler(HTTPException, _reply_to_http_error)
    app.add_exception_handler(ClientDisconnected, _reply_to_disconnected)

    @app.get("/metrics")
    async def metrics() -> Response:
        """Return the metrics for Prometheus."""
        return Response(
            format_metrics(infer.repository, infer.counts, read_packet_counts), media_type=PROMETHEUS_TYPE
        )

    return app


def get_toolkit_version() -> str:
    """Return the version of this toolkit, or "unknown" if it is not installed."""
    try:
        return version("lightbed")
    except PackageNotFoundError:
        return "unknown"


def describe_model(instance: ModelInstance) -> Document:
    """Return the metadata of a model. The model accepts every numeric datatype, not only that in the metadata."""
    network = instance.model.network
    return {
        "name": instance.name,
        "versions": [instance.version],
        "platform": "lightbed_photonic",
        "inputs": [{"name": network.input, "datatype": "FP32", "shape": [-1, *instance.raw_shape]}],
        "outputs": [{"name": network.output, "datatype": "FP32", "shape": [-1, *network.output_shape]}],
        "parameters": {
            "fidelity": instance.executor.fidelity,
            "scheme": instance.model.scheme_in_words,
            "hash": instance.hash,
            "origin": dict(instance.model.origin),
            **instance.origin,
        },
    }


def _add_health(app: FastAPI, infer: Infer) -> None:
    @app.get("/v2")
    async def server() -> Document:
        """Return the name, version and extensions of the server."""
        return {
            "name": "lightbed",
            "version": get_toolkit_version(),
            "extensions": ["binary_tensor_data", "model_repository"],
        }

    @app.get("/v2/health/live")
    async def live() -> Document:
        """Report that the server runs."""
        return {"live": True}

    @app.get("/v2/health/ready")
    async def ready(response: Response) -> Document:
        """Return whether a model is in service. The status is 503 if none is. Loaded models are warm."""
        is_ready = bool(infer.repository.list_serving())
        response.status_code = 200 if is_ready else 503
        return {"ready": is_ready}


def _add_models(app: FastAPI, infer: Infer) -> None:
    @app.get(MODEL_ROUTE)
    @app.get(VERSION_ROUTE)
    async def model_metadata(model: str, number: str | None = None) -> Document:
        """Return names, datatypes and shapes of the inputs and outputs of a model."""
        with infer.repository.acquire(model, number) as instance:
            return describe_model(instance)

    @app.get(MODEL_ROUTE + "/ready")
    @app.get(VERSION_ROUTE + "/ready")
    async def model_ready(model: str, number: str | None = None) -> Document:
        """Report that a model is in service. The status is 404 if it is not."""
        with infer.repository.acquire(model, number) as instance:
            return {"name": instance.name, "ready": True}

    @app.post(MODEL_ROUTE + "/infer", openapi_extra=INFER_SCHEMA)
    @app.post(VERSION_ROUTE + "/infer", openapi_extra=INFER_SCHEMA)
    async def answer(request: Request, model: str, number: str | None = None) -> Response:
        """Run a model on a batch. The body is JSON, or JSON followed by binary tensors."""
        return _make_response(await infer.make_reply(model, number, request.scope, request.receive))


def _add_repository(app: FastAPI, infer: Infer) -> None:
    @app.post("/v2/repository/index")
    async def index(request: Request) -> list[Document]:
        """Return the models in service, and the files that could be loaded."""
        only_ready = (await _read_document(request, infer)).get("ready") is True
        entries = infer.repository.list_models()
        return [
            {"name": entry.name, "version": entry.version, "state": state, "reason": ""}
            for entry in entries
            for state in ["READY" if entry.is_ready else "UNAVAILABLE"]
            if entry.is_ready or not only_ready
        ]

    @app.post(REPOSITORY_ROUTE + "/load")
    async def load(request: Request, model: str) -> Document:
        """Load a model, or reload it from its source, while requests are served."""
        if (await _read_document(request, infer)).get("parameters"):
            raise MalformedRequest(
                "the server loads models from its own files only", hint="Send no `parameters`"
            )
        instance = await run_in_threadpool(infer.repository.load, model)
        return {"name": instance.name, "version": instance.version}

    @app.post(REPOSITORY_ROUTE + "/unload")
    async def unload(model: str) -> Document:
        """Take a model out of service. Pending requests are still answered."""
        infer.repository.unload(model)
        return {"name": model}


async def _reply_to_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, LightningError)
    return _make_response(make_error_response(error, request.scope["headers"]))


async def _reply_to_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path, status = request.url.path, error.status_code
    message = (
        f"{request.method} {path}: {error.detail}. Routes are listed at /docs; the protocol's begin with /v2"
    )
    response = _make_response(make_error_reply(message, f"http.{status}", status))
    response.headers.update(error.headers or {})
    return response


async def _reply_to_disconnected(_request: Request, _error: Exception) -> Response:
    return Response(status_code=499)  # nginx's code for a client that has closed the connection


async def _read_document(request: Request, infer: Infer) -> Document:
    headers = request.scope["headers"]
    size = check_content_length(headers, min(MAX_DOCUMENT_BYTES, infer.limits.max_body_bytes))
    return decode_object(await read_body(headers, request.receive, size))


def _make_response(reply: Reply) -> Response:
    headers: dict[str, Any] = {key.decode(): value.decode() for key, value in reply.headers}
    return Response(reply.body, reply.status, headers)

"""The table of routes: method, path, handler, role, scope and response. Application and gate are built from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from testbed.commands.declare import Role
from testbed.service import changing, documents, reading

Handler = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Route:
    """A route.

    `role` is the lowest role that may use it (None: everybody). `problem_statuses` lists its error statuses.
    """

    method: str
    path: str
    handler: Handler
    role: Role | None
    scope: str
    response_model: type[BaseModel] | None
    status: int = 200
    problem_statuses: tuple[int, ...] = ()
    content_type: str = "application/json"

    @property
    def is_read_only(self) -> bool:
        """True if the route changes nothing. An open service requires no token for such a route."""
        return self.method == "GET"


_LAB_PATH = "/v1/labs/{lab}"
_LEASE_PATH = f"{_LAB_PATH}/leases/{{lease}}"
_READ_SCOPE = "labs:read"
_LEASE_PROBLEMS = (404, 409, 412, 423, 428)

ROUTES: tuple[Route, ...] = (
    Route("GET", "/healthz", reading.health, None, "", documents.Health),
    Route("GET", "/readyz", reading.readiness, None, "", documents.Health, problem_statuses=(503,)),
    Route("GET", "/openapi.json", reading.document, None, "", None),
    Route("GET", "/metrics", reading.metrics, "viewer", _READ_SCOPE, None, content_type="text/plain"),
    Route("GET", "/v1/labs", reading.labs, "viewer", _READ_SCOPE, documents.LabList),
    Route(
        "GET", _LAB_PATH, reading.lab, "viewer", _READ_SCOPE, documents.LabDocument, problem_statuses=(404,)
    ),
    Route(
        "GET",
        f"{_LAB_PATH}/hosts",
        reading.hosts,
        "viewer",
        _READ_SCOPE,
        documents.HostList,
        problem_statuses=(404,),
    ),
    Route(
        "GET",
        f"{_LAB_PATH}/hosts/{{host}}",
        reading.host,
        "viewer",
        _READ_SCOPE,
        documents.HostDocument,
        problem_statuses=(404,),
    ),
    Route(
        "GET",
        f"{_LAB_PATH}/switches",
        reading.switches,
        "viewer",
        _READ_SCOPE,
        documents.SwitchList,
        problem_statuses=(404,),
    ),
    Route(
        "GET",
        f"{_LAB_PATH}/switches/{{switch}}",
        reading.switch,
        "viewer",
        _READ_SCOPE,
        documents.SwitchDocument,
        problem_statuses=(404,),
    ),
    Route(
        "GET",
        f"{_LAB_PATH}/topologies",
        reading.topologies,
        "viewer",
        _READ_SCOPE,
        documents.TopologyList,
        problem_statuses=(404,),
    ),
    Route(
        *(
            "GET",
            f"{_LAB_PATH}/topologies/{{epoch}}",
            reading.topology,
            "viewer",
            _READ_SCOPE,
            documents.TopologyDocument,
        ),
        problem_statuses=(404,),
    ),
    Route(
        "GET",
        f"{_LAB_PATH}/topology",
        reading.current_topology,
        "viewer",
        _READ_SCOPE,
        documents.TopologyDocument,
        problem_statuses=(404,),
    ),
    Route(
        *(
            "PUT",
            f"{_LAB_PATH}/topology",
            changing.set_topology,
            "operator",
            "runs:write",
            documents.RunDocument,
            202,
        ),
        problem_statuses=(404, 412, 428, 429),
    ),
    Route(
        "GET",
        f"{_LAB_PATH}/history",
        reading.history,
        "viewer",
        _READ_SCOPE,
        documents.HistoryDocument,
        problem_statuses=(404,),
    ),
    Route(
        "GET",
        f"{_LAB_PATH}/operations",
        reading.operations,
        "viewer",
        _READ_SCOPE,
        documents.OperationList,
        problem_statuses=(404,),
    ),
    Route(
        "GET",
        f"{_LAB_PATH}/findings",
        reading.findings,
        "viewer",
        _READ_SCOPE,
        documents.FindingList,
        problem_statuses=(404,),
    ),
    Route(
        "GET",
        f"{_LAB_PATH}/drift",
        reading.drift,
        "viewer",
        _READ_SCOPE,
        documents.DriftDocument,
        problem_statuses=(404,),
    ),
    Route(
        "GET",
        f"{_LAB_PATH}/leases",
        changing.leases,
        "viewer",
        _READ_SCOPE,
        documents.LeaseList,
        problem_statuses=(404,),
    ),
    Route(
        *(
            "POST",
            f"{_LAB_PATH}/leases",
            changing.request_lease,
            "operator",
            "leases:write",
            documents.LeaseDocument,
            201,
        ),
        problem_statuses=(404, 409),
    ),
    Route(
        "GET",
        _LEASE_PATH,
        changing.lease,
        "viewer",
        _READ_SCOPE,
        documents.LeaseDocument,
        problem_statuses=(404,),
    ),
    Route(
        *("PATCH", _LEASE_PATH, changing.extend_lease, "operator", "leases:write", documents.LeaseDocument),
        problem_statuses=_LEASE_PROBLEMS,
    ),
    Route(
        *("DELETE", _LEASE_PATH, changing.release_lease, "operator", "leases:write", documents.LeaseDocument),
        problem_statuses=_LEASE_PROBLEMS,
    ),
    Route(
        *(
            "POST",
            f"{_LEASE_PATH}/break",
            changing.break_lease,
            "admin",
            "leases:write",
            documents.LeaseDocument,
        ),
        problem_statuses=(404, 409, 423),
    ),
    Route(
        *(
            "PUT",
            f"{_LAB_PATH}/maintenance",
            changing.set_maintenance,
            "developer",
            "labs:write",
            documents.StillDocument,
        ),
        problem_statuses=(404,),
    ),
    Route(
        *(
            "DELETE",
            f"{_LAB_PATH}/maintenance",
            changing.clear_maintenance,
            "developer",
            "labs:write",
            documents.StillDocument,
        ),
        problem_statuses=(404,),
    ),
    Route(
        "PUT",
        f"{_LAB_PATH}/stop",
        changing.stop_lab,
        "viewer",
        "labs:stop",
        documents.StillDocument,
        problem_statuses=(404,),
    ),
    Route(
        "DELETE",
        f"{_LAB_PATH}/stop",
        changing.release_stop,
        "operator",
        "labs:stop",
        documents.StillDocument,
        problem_statuses=(404,),
    ),
    Route("GET", "/v1/runs", changing.runs, "viewer", "runs:read", documents.RunList),
    Route(
        *("POST", "/v1/runs", changing.submit_run, "viewer", "runs:write", documents.RunDocument, 202),
        problem_statuses=(404, 409, 429),
    ),
    Route(
        "GET",
        "/v1/runs/{run}",
        changing.run,
        "viewer",
        "runs:read",
        documents.RunDocument,
        problem_statuses=(404,),
    ),
    Route(
        *("GET", "/v1/runs/{run}/files/{file}", changing.run_file, "viewer", "runs:read", None),
        problem_statuses=(404,),
        content_type="application/octet-stream",
    ),
    Route(
        *(
            "POST",
            "/v1/runs/{run}/cancel",
            changing.cancel_run,
            "viewer",
            "runs:write",
            documents.RunDocument,
            202,
        ),
        problem_statuses=(404, 409),
    ),
    Route(
        "GET",
        "/v1/events",
        changing.events,
        "viewer",
        "runs:read",
        None,
        problem_statuses=(404,),
        content_type="text/event-stream",
    ),
    Route("GET", "/v1/results", reading.results, "viewer", "runs:read", documents.ResultList),
    Route("GET", "/v1/audit", reading.audit, "admin", "audit:read", documents.AuditDocument),
)
"""All routes. The role that a run needs depends on its command (see `requests`). Any token may stop a lab."""

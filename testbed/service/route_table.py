"""The table of routes: method, path, handler, role, scope and response. Application and gate are built from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from testbed.commands.declare import Role
from testbed.service import changing, documents, looking

Handler = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Route:
    """A route. `role` is the lowest role that may use it (None: everybody). `problems` lists its error statuses."""

    method: str
    path: str
    handler: Handler
    role: Role | None
    scope: str
    answer: type[BaseModel] | None
    status: int = 200
    problems: tuple[int, ...] = ()
    content: str = "application/json"

    @property
    def is_read_only(self) -> bool:
        """True if the route changes nothing. An open service then requires no token."""
        return self.method == "GET"


_LAB = "/v1/labs/{lab}"
_LEASE = f"{_LAB}/leases/{{lease}}"
_READ = "labs:read"
_D = documents
_L = looking
_C = changing
_LEASE_PROBLEMS = (404, 409, 412, 423, 428)

ROUTES: tuple[Route, ...] = (
    Route("GET", "/healthz", _L.health, None, "", _D.Health),
    Route("GET", "/readyz", _L.readiness, None, "", _D.Health, problems=(503,)),
    Route("GET", "/openapi.json", _L.document, None, "", None),
    Route("GET", "/metrics", _L.metrics, "viewer", _READ, None, content="text/plain"),
    Route("GET", "/v1/labs", _L.labs, "viewer", _READ, _D.LabList),
    Route("GET", _LAB, _L.lab, "viewer", _READ, _D.LabDocument, problems=(404,)),
    Route("GET", f"{_LAB}/hosts", _L.hosts, "viewer", _READ, _D.HostList, problems=(404,)),
    Route("GET", f"{_LAB}/hosts/{{host}}", _L.host, "viewer", _READ, _D.HostDocument, problems=(404,)),
    Route("GET", f"{_LAB}/switches", _L.switches, "viewer", _READ, _D.SwitchList, problems=(404,)),
    Route(
        "GET", f"{_LAB}/switches/{{switch}}", _L.switch, "viewer", _READ, _D.SwitchDocument, problems=(404,)
    ),
    Route("GET", f"{_LAB}/topologies", _L.topologies, "viewer", _READ, _D.TopologyList, problems=(404,)),
    Route(
        *("GET", f"{_LAB}/topologies/{{epoch}}", _L.topology, "viewer", _READ, _D.TopologyDocument),
        problems=(404,),
    ),
    Route(
        "GET", f"{_LAB}/topology", _L.current_topology, "viewer", _READ, _D.TopologyDocument, problems=(404,)
    ),
    Route(
        *("PUT", f"{_LAB}/topology", _C.set_topology, "operator", "runs:write", _D.RunDocument, 202),
        problems=(404, 412, 428, 429),
    ),
    Route("GET", f"{_LAB}/history", _L.history, "viewer", _READ, _D.HistoryDocument, problems=(404,)),
    Route("GET", f"{_LAB}/operations", _L.operations, "viewer", _READ, _D.OperationList, problems=(404,)),
    Route("GET", f"{_LAB}/findings", _L.findings, "viewer", _READ, _D.FindingList, problems=(404,)),
    Route("GET", f"{_LAB}/drift", _L.drift, "viewer", _READ, _D.DriftDocument, problems=(404,)),
    Route("GET", f"{_LAB}/leases", _C.leases, "viewer", _READ, _D.LeaseList, problems=(404,)),
    Route(
        *("POST", f"{_LAB}/leases", _C.request_lease, "operator", "leases:write", _D.LeaseDocument, 201),
        problems=(404, 409),
    ),
    Route("GET", _LEASE, _C.lease, "viewer", _READ, _D.LeaseDocument, problems=(404,)),
    Route(
        *("PATCH", _LEASE, _C.extend_lease, "operator", "leases:write", _D.LeaseDocument),
        problems=_LEASE_PROBLEMS,
    ),
    Route(
        *("DELETE", _LEASE, _C.release_lease, "operator", "leases:write", _D.LeaseDocument),
        problems=_LEASE_PROBLEMS,
    ),
    Route(
        *("POST", f"{_LEASE}/break", _C.break_lease, "admin", "leases:write", _D.LeaseDocument),
        problems=(404, 409, 423),
    ),
    Route(
        *("PUT", f"{_LAB}/maintenance", _C.set_maintenance, "developer", "labs:write", _D.StillDocument),
        problems=(404,),
    ),
    Route(
        *("DELETE", f"{_LAB}/maintenance", _C.clear_maintenance, "developer", "labs:write", _D.StillDocument),
        problems=(404,),
    ),
    Route("PUT", f"{_LAB}/stop", _C.stop_lab, "viewer", "labs:stop", _D.StillDocument, problems=(404,)),
    Route(
        "DELETE", f"{_LAB}/stop", _C.release_stop, "operator", "labs:stop", _D.StillDocument, problems=(404,)
    ),
    Route("GET", "/v1/runs", _C.runs, "viewer", "runs:read", _D.RunList),
    Route(
        *("POST", "/v1/runs", _C.submit_run, "viewer", "runs:write", _D.RunDocument, 202),
        problems=(404, 409, 429),
    ),
    Route("GET", "/v1/runs/{run}", _C.run, "viewer", "runs:read", _D.RunDocument, problems=(404,)),
    Route(
        *("GET", "/v1/runs/{run}/files/{file}", _C.run_file, "viewer", "runs:read", None),
        problems=(404,),
        content="application/octet-stream",
    ),
    Route(
        *("POST", "/v1/runs/{run}/cancel", _C.cancel_run, "viewer", "runs:write", _D.RunDocument, 202),
        problems=(404, 409),
    ),
    Route(
        "GET",
        "/v1/events",
        _C.events,
        "viewer",
        "runs:read",
        None,
        problems=(404,),
        content="text/event-stream",
    ),
    Route("GET", "/v1/results", _L.results, "viewer", "runs:read", _D.ResultList),
    Route("GET", "/v1/audit", _L.audit, "admin", "audit:read", _D.AuditDocument),
)
"""All routes. The role that a run needs depends on its command (see `requests`). Any token may stop a lab."""

"""Handlers of runs, leases, maintenance, the emergency stop and events. Every change has a line in the audit log."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, Union

from fastapi import Body, Header, Query
from pydantic import Field
from starlette.responses import FileResponse, Response, StreamingResponse

from testbed.leases.model import HELD_STATES, Lease, find_parts
from testbed.leases.store import LeaseStore
from testbed.operate.engine.consent import EmergencyStop
from testbed.operate.recovery.records import load_operations
from testbed.operate.unfinished import find_unfinished_or_error
from testbed.service.context import CallerContext, RequestContext, make_answer
from testbed.service.documents import LeaseExtension, LeaseRequest, Reason, TopologyRequest
from testbed.service.events import EVENT_KINDS, EventFilter
from testbed.service.labs import LabView, check_etag, load_topology_document, make_etag
from testbed.service.reading import Limit, Name
from testbed.service.requests import Request, find_model, get_command, list_models, parse_request
from testbed.service.runs import Run
from testbed.service.workers import get_run_folder, interrupt
from testbed.service_errors import InvalidRequest, NotAllowed, NotFound
from testbed.storage.owner import act_on_behalf

IdempotencyKey = Annotated[str, Header(alias="Idempotency-Key", max_length=200, pattern=r"^[\x21-\x7e]*$")]
EntityTag = Annotated[str, Header(alias="If-Match", max_length=400)]
QueryText = Annotated[str, Query(max_length=2000)]
if TYPE_CHECKING:
    AnyRequest: TypeAlias = Request
else:
    AnyRequest = Annotated[Union[list_models()], Field(discriminator="command")]  # noqa: UP007  `|` takes no tuple


def submit_run(
    context: CallerContext, body: Annotated[AnyRequest, Body()], idempotency_key: IdempotencyKey = ""
) -> Response:
    """Submit a run of a command. It starts when its lane has room."""
    request: Request = body
    labs = request.list_labs()
    try:
        context.identity.check(request.role, request.needs_scope)
        for lab in labs or ("",):  # "": a run about all labs needs a token for all labs
            context.identity.check_lab(lab)
    except NotAllowed as error:
        context.audit(
            f"run {get_command(type(request))}",
            request.lab,
            reason=request.why,
            outcome=f"refused: {error.code}",
        )
        raise
    for lab in labs:
        request.check_devices(context.get_lab(lab).lab)
    return _submit(context, request, idempotency_key)


def _submit(context: RequestContext, request: Request, idempotency_key: str) -> Response:
    text = request.model_dump_json(exclude_defaults=True)
    run, is_new = context.service.runs.submit(
        context.identity,
        request.lab,
        get_command(type(request)),
        text,
        reason=request.why,
        plan=_hash_plan(request),
        idempotency_key=idempotency_key,
    )
    if is_new:
        context.service.workers.wake()
    return make_answer(run.json(), 202, headers={"Location": f"/v1/runs/{run.id}"})


def _hash_plan(request: Request) -> str:
    """Return the hash of the plan or change in a request, or "" without one."""
    plan_texts = [str(text) for name in request.files if (text := getattr(request, name)) is not None]
    return hashlib.sha256("".join(plan_texts).encode("utf-8", "replace")).hexdigest() if plan_texts else ""


def runs(
    context: CallerContext,
    lab: QueryText = "",
    state: QueryText = "",
    command: QueryText = "",
    limit: Limit = 100,
) -> Response:
    """List runs, newest first."""
    run_list = context.service.runs.list_runs(
        lab=lab, state=state, command=command, limit=limit, labs=context.identity.labs
    )
    return make_answer({"runs": [item.make_summary() for item in run_list]})


def run(context: CallerContext, run: Name) -> Response:
    """Return a run and its outcome."""
    return make_answer(_read_run(context, run).json())


def run_file(context: CallerContext, run: Name, file: Name) -> Response:
    """Return a file that the command of a run wrote."""
    stored_run = _read_run(context, run)
    files = _parse_run_request(stored_run).writes.values()
    path = get_run_folder(context.service.runs_dir, stored_run.id) / file
    if file not in files or not path.is_file():
        raise NotFound(f"run {run!r} ({stored_run.command}) has written no file {file!r}")
    return FileResponse(path, media_type="application/octet-stream")


def _parse_run_request(run: Run) -> Request:
    """Return the request of a run. Raise `NotFound` if this version of the service cannot parse it."""
    try:
        return parse_request(run.request)
    except InvalidRequest as error:
        raise NotFound(f"this version of the service cannot read run {run.id!r}: {error}") from error


def _read_run(context: RequestContext, run_id: str) -> Run:
    run = context.service.runs.get(run_id)
    request = _parse_run_request(run)
    for lab in request.list_labs() or ("",):  # the same check as in `submit_run`
        context.identity.check_lab(lab)
    context.identity.check_role(request.readers)
    return run


def cancel_run(context: CallerContext, run: Name) -> Response:
    """Withdraw a waiting run, or stop a running one after its current step.

    Users may cancel their own runs, holders of a lease the runs on their lab, and admins all runs.
    """
    _check_may_cancel(context, _read_run(context, run))
    cancelled_run = context.service.runs.cancel(context.identity, run)
    interrupt(cancelled_run)
    return make_answer(cancelled_run.json(), 202)


def _check_may_cancel(context: RequestContext, run: Run) -> None:
    if run.who == context.identity.name or context.identity.has_role("admin"):
        return
    leases = context.get_lab(run.lab).list_leases() if run.lab else []
    if not any(lease["owner"] == context.identity.name and lease["state"] in HELD_STATES for lease in leases):
        context.audit("cancel run", run.lab, outcome=f"refused: run {run.id} belongs to {run.who}")
        raise NotAllowed(
            f"run {run.id} belongs to {run.who}: only an admin, or the holder of a lease of the lab, may "
            "cancel it"
        )


def events(
    context: CallerContext,
    lab: QueryText = "",
    run: QueryText = "",
    kind: QueryText = "",
    last_event_id: Annotated[str, Header(alias="Last-Event-ID", max_length=20)] = "",
) -> Response:
    """Stream events: first a snapshot, or all events after Last-Event-ID. Filters are lists, separated by commas."""
    kinds = _split_list(kind)
    if not kinds <= set(EVENT_KINDS):
        raise InvalidRequest(
            f"kind {min(kinds - set(EVENT_KINDS))!r} is not known: choose from {', '.join(EVENT_KINDS)}"
        )
    if last_event_id and not (last_event_id.isascii() and last_event_id.isdigit()):
        raise InvalidRequest(f"Last-Event-ID must be the number of an event, not {last_event_id!r}")
    for lab_name in _split_list(lab):
        context.get_lab(lab_name)
    selection = EventFilter(_split_list(lab), _split_list(run), kinds, context.identity.may_see)
    last_number = int(last_event_id) if last_event_id else None
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    stream = context.service.feed.stream(selection, last_number)
    return StreamingResponse(stream, headers=headers, media_type="text/event-stream")


def _split_list(text: str) -> frozenset[str]:
    return frozenset(filter(None, text.split(",")))


def set_topology(
    context: CallerContext, lab: Name, body: TopologyRequest, if_match: EntityTag = ""
) -> Response:
    """Submit a run of `apply` that replaces the topology in If-Match. Check If-Match now and when the run starts."""
    with _serialise_changes(context, lab):
        etag = make_etag(load_topology_document(context.service.runs_dir, lab))
        check_etag(if_match, etag, f"the topology of {lab}")
        required_etag = "" if if_match.strip() == "*" else etag
        fields = body.model_dump(exclude_unset=True)
        apply = find_model("apply")
        assert apply
        run_body = {"command": "apply", "lab": lab, "if_match": required_etag, **fields}
        return _submit(context, apply.model_validate(run_body), "")


def leases(context: CallerContext, lab: Name, ended: bool = False) -> Response:
    """List the leases of a lab, and what waiting requests wait for."""
    view = context.get_lab(lab)
    maintenance = context.service.get_lab(lab).json()["maintenance"]
    return make_answer(
        {"lab": lab, "leases": view.list_leases(includes_ended=ended), "maintenance": maintenance}
    )


def lease(context: CallerContext, lab: Name, lease: Name) -> Response:
    """Return a lease. To change it, name its ETag in If-Match."""
    document = _find_lease(context.get_lab(lab), lease)
    return make_answer(document, etag=make_etag(document))


def request_lease(context: CallerContext, lab: Name, body: LeaseRequest) -> Response:
    """Request parts of a lab, all or nothing. The request is granted immediately or queued."""
    view = context.get_lab(lab)
    with _serialise_changes(context, lab):
        parts = find_parts(view.lab, tuple(body.resources))
        context.audit("request lease", lab, reason=body.reason)
        requested_lease = _open_store(context, view).request(
            tuple(body.resources),
            parts,
            ttl_s=body.ttl_s,
            priority=body.priority,
            starts_s=body.starts_s,
            allowed_owners=body.allowed,
            reason=body.reason,
        )
        return _answer_lease(view, requested_lease, 201)


def extend_lease(
    context: CallerContext, lab: Name, lease: Name, body: LeaseExtension, if_match: EntityTag = ""
) -> Response:
    """Extend a lease, so that it ends in `ttl_s` seconds."""
    view = context.get_lab(lab)
    with _serialise_changes(context, lab):
        check_etag(if_match, make_etag(_find_lease(view, lease)), f"lease {lease}")
        context.audit("extend lease", lab, outcome=f"lease {lease}")
        return _answer_lease(view, _open_store(context, view).extend(lease, body.ttl_s))


def release_lease(context: CallerContext, lab: Name, lease: Name, if_match: EntityTag = "") -> Response:
    """Release a lease, or withdraw a request."""
    view = context.get_lab(lab)
    with _serialise_changes(context, lab):
        check_etag(if_match, make_etag(_find_lease(view, lease)), f"lease {lease}")
        context.audit("release lease", lab, outcome=f"lease {lease}")
        return _answer_lease(view, _open_store(context, view).release(lease))


def break_lease(context: CallerContext, lab: Name, lease: Name, body: Reason) -> Response:
    """End anyone's lease."""
    view = context.get_lab(lab)
    with _serialise_changes(context, lab):
        _find_lease(view, lease)
        context.audit("break lease", lab, reason=body.reason, outcome=f"lease {lease}")
        return _answer_lease(view, _open_store(context, view).break_lease(lease, body.reason))


def set_maintenance(context: CallerContext, lab: Name, body: Reason) -> Response:
    """Stop all changes of a lab while people work in the rack. The key `still` is true if nothing is being sent now."""
    view = context.get_lab(lab)
    with _serialise_changes(context, lab):
        context.audit("maintenance on", lab, reason=body.reason)
        store = _open_store(context, view)
        store.set_maintenance(body.reason)
        return make_answer({"lab": lab, "maintenance": True, "still": not store.find_sending_leases()})


def clear_maintenance(context: CallerContext, lab: Name) -> Response:
    """End the maintenance of a lab. The key `was` says whether the lab was under maintenance."""
    view = context.get_lab(lab)
    with _serialise_changes(context, lab):
        context.audit("maintenance off", lab)
        was_set = _open_store(context, view).clear_maintenance()
        return make_answer({"lab": lab, "maintenance": False, "was": was_set})


def stop_lab(context: CallerContext, lab: Name, body: Reason) -> Response:
    """Stop a lab, so that nobody can send anything to its devices."""
    view = context.get_lab(lab)
    # The stop comes before the audit line, because a busy database may delay the line.
    with act_on_behalf(context.identity.name):
        EmergencyStop(context.service.runs_dir, lab).activate(body.reason)
    view.clear_cache()
    context.audit("stop", lab, reason=body.reason)
    running_operations = [
        record.id for record in load_operations(context.service.runs_dir, lab) if record.state == "running"
    ]
    document = {"lab": lab, "stopped": True, "reason": body.reason, "running": running_operations}
    return make_answer(document | _list_unfinished(context, view))


def release_stop(context: CallerContext, lab: Name) -> Response:
    """Allow changes of a stopped lab again. The key `was_stopped` says whether the lab was stopped."""
    view = context.get_lab(lab)
    context.audit("release stop", lab)
    was_stopped = EmergencyStop(context.service.runs_dir, lab).release()
    view.clear_cache()
    return make_answer(
        {"lab": lab, "stopped": False, "was_stopped": was_stopped} | _list_unfinished(context, view)
    )


def _list_unfinished(context: RequestContext, view: LabView) -> dict[str, Any]:
    unfinished = find_unfinished_or_error(context.service.runs_dir, view.lab)
    return {"unfinished": [operation.json() for operation in unfinished]}


@contextmanager
def _serialise_changes(context: RequestContext, lab: str) -> Iterator[None]:
    """Serialise the changes of a lab through this service, so that no change comes between an If-Match and its use."""
    view = context.get_lab(lab)
    with context.service.lock_by_lab[lab], act_on_behalf(context.identity.name):
        try:
            yield
        finally:
            view.clear_cache()


def _open_store(context: RequestContext, view: LabView) -> LeaseStore:
    return LeaseStore(context.service.database, view.lab.name, owner=context.identity.name)


def _find_lease(view: LabView, lease_id: str) -> dict[str, Any]:
    document = next(
        (lease for lease in view.list_leases(includes_ended=True) if lease["id"] == lease_id), None
    )
    if document is None:
        raise NotFound(f"lab {view.lab.name!r} has no lease {lease_id!r}")
    return document


def _answer_lease(view: LabView, lease: Lease, status: int = 200) -> Response:
    document = _find_lease(view, lease.id)
    headers = {"Location": f"/v1/labs/{view.lab.name}/leases/{lease.id}"} if status == 201 else {}
    return make_answer(document, status, etag=make_etag(document), headers=headers)

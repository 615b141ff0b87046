"""Handlers that only read: health, labs, topologies, history, drift, results, the audit log."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query
from starlette.responses import Response

from testbed.observe.exposition import CONTENT_TYPE, format_exposition
from testbed.observe.stored_metrics import load_samples
from testbed.operate.recovery.records import load_history, load_operations
from testbed.service.context import CallerContext, make_answer
from testbed.service.labs import load_topology_document, make_etag, make_topology_json
from testbed.service.metrics import count_findings
from testbed.service.problems import make_problem, make_response
from testbed.service_errors import NotFound
from testbed.storage.address import get_database_address
from testbed.storage.audit import read_audit, verify_audit_log
from testbed.storage.reading import read_rows

Name = Annotated[str, Path(max_length=200)]
EpochNumber = Annotated[int, Path(ge=1, le=2**31 - 1)]
Limit = Annotated[int, Query(ge=1, le=1000)]


def health() -> Response:
    """Return that the service runs."""
    return make_answer({"status": "ok"})


def readiness(context: CallerContext) -> Response:
    """Return the state of every lab. If a lab does not answer or the database is unreadable, the answer is a 503."""
    service = context.service
    reason_by_lab = {view.lab.name: view.explain_outage() for view in service.labs}
    state_by_lab = {name: "down" if reason else "up" for name, reason in reason_by_lab.items()}
    problems = [*filter(None, reason_by_lab.values()), *filter(None, [service.feed.error])]
    if problems:
        return make_response(
            make_problem(
                503,
                "service.ready",
                "device",
                "; ".join(problems),
                context.request.url.path,
                labs=state_by_lab,
            )
        )
    return make_answer({"status": "ok", "labs": state_by_lab})


def metrics(context: CallerContext) -> Response:
    """Return metrics of the database and of the labs' switches, in the text format of Prometheus."""
    service = context.service
    switch_samples = [
        sample
        for view in service.labs
        for sample in service.switch_metrics_by_lab[view.lab.name].get_samples(view)
    ]
    finding_samples = [sample for view in service.labs for sample in count_findings(view)]
    samples = [*load_samples(service.runs_dir), *finding_samples, *switch_samples]
    # The first label of a sample is its lab.
    text = format_exposition(sample for sample in samples if context.identity.may_see(sample.label_values[0]))
    return Response(text, media_type=CONTENT_TYPE)


def document(context: CallerContext) -> Response:
    """Return this interface as an OpenAPI document."""
    return make_answer(context.request.app.openapi())


def labs(context: CallerContext) -> Response:
    """List the labs."""
    visible_views = [view for view in context.service.labs if context.identity.may_see(view.lab.name)]
    return make_answer({"labs": [view.get_cached("lab", view.json) for view in visible_views]})


def lab(context: CallerContext, lab: Name) -> Response:
    """Return a lab and its current state."""
    view = context.get_lab(lab)
    return make_answer(view.get_cached("lab", view.json))


def hosts(context: CallerContext, lab: Name) -> Response:
    """List the hosts of a lab."""
    return make_answer({"lab": lab, "hosts": context.get_lab(lab).list_hosts()})


def host(context: CallerContext, lab: Name, host: Name) -> Response:
    """Return a host."""
    return make_answer(_find_named(context.get_lab(lab).list_hosts(), host, "host"))


def switches(context: CallerContext, lab: Name) -> Response:
    """List the switches of a lab with circuits and ports, at their last reading."""
    view = context.get_lab(lab)
    return make_answer({"lab": lab, "switches": view.get_cached("switches", view.list_switches)})


def switch(context: CallerContext, lab: Name, switch: Name) -> Response:
    """Return a switch with circuits and ports, at their last reading."""
    view = context.get_lab(lab)
    return make_answer(_find_named(view.get_cached("switches", view.list_switches), switch, "switch"))


def _find_named(documents: list[dict[str, Any]], name: str, kind: str) -> dict[str, Any]:
    named_part = next((part for part in documents if part["name"] == name), None)
    if named_part is None:
        raise NotFound(
            f"the lab has no {kind} {name!r}; it has {', '.join(part['name'] for part in documents)}"
        )
    return named_part


def topologies(context: CallerContext, lab: Name) -> Response:
    """List the topologies that were applied to a lab, newest first."""
    return make_answer(
        {
            "lab": lab,
            "topologies": [make_topology_json(intent) for intent in context.get_lab(lab).list_topologies()],
        }
    )


def topology(context: CallerContext, lab: Name, epoch: EpochNumber) -> Response:
    """Return a topology by its epoch."""
    intent = next(
        (candidate for candidate in context.get_lab(lab).list_topologies() if candidate.epoch == epoch), None
    )
    if intent is None:
        raise NotFound(f"lab {lab!r} has no epoch {epoch}; see its topologies")
    document = make_topology_json(intent, includes_links=True)
    return make_answer(document, etag=make_etag(document))


def current_topology(context: CallerContext, lab: Name) -> Response:
    """Return the topology in force. A request that changes it must send its ETag in If-Match."""
    view = context.get_lab(lab)
    document = load_topology_document(view.runs_dir, lab)
    current_intent = view.find_current_intent()
    tag = make_etag(document)  # without the last check, which must not change the ETag
    if current_intent is not None and current_intent.epoch == document["epoch"]:
        document = view.add_last_check(document, current_intent, view.find_last_check())
    return make_answer(document, etag=tag)


def history(context: CallerContext, lab: Name) -> Response:
    """List the epochs of a lab: when, by whom, why, and the changes of each."""
    view = context.get_lab(lab)
    return make_answer({"lab": lab, "epochs": load_history(context.service.runs_dir, view.lab.name)})


def operations(context: CallerContext, lab: Name, limit: Limit = 100) -> Response:
    """List the operations of a lab with their steps, newest last."""
    view = context.get_lab(lab)
    records = load_operations(context.service.runs_dir, view.lab.name)[-limit:]
    return make_answer({"lab": lab, "operations": [record.json() for record in records]})


def findings(context: CallerContext, lab: Name) -> Response:
    """List the findings of the newest check of the topology in force, with its time and command."""
    view = context.get_lab(lab)
    check = view.find_last_check()
    source = check.describe_source() if check else None
    return make_answer({"lab": lab, "seen": source, "findings": check.findings if check else []})


def drift(context: CallerContext, lab: Name) -> Response:
    """List the last loss of every fibre section, as stored by `testbed drift`."""
    return make_answer({"lab": lab, "places": context.get_lab(lab).list_losses()})


def results(context: CallerContext, limit: Limit = 100) -> Response:
    """List the stored runs of measurements, newest first."""
    query = (
        "select id, lab, status, started, finished, simulated, hosts, error from runs order by started desc"
    )
    rows = read_rows(get_database_address(context.service.runs_dir), query)
    visible_rows = [
        {"run_id": row["id"], **dict(row)} for row in rows if context.identity.may_see(row["lab"])
    ]
    return make_answer({"runs": visible_rows[:limit]})


def audit(context: CallerContext, limit: Limit = 100) -> Response:
    """Return the newest lines of the audit log, and whether the whole log is unchanged.

    A token that is limited to labs gets only their lines.
    """
    address = get_database_address(context.service.runs_dir)
    check = verify_audit_log(address)
    entries = [entry for entry in read_audit(address) if context.identity.may_see(entry["lab"])]
    document = {"entries": entries[-limit:], "whole": check.broken_line is None, "lines": check.line_count}
    return make_answer(
        document | ({"broken": check.broken_line, "reason": check.reason} if check.broken_line else {})
    )

"""A warmed process that forks one child for each operation: `python crash_server.py RECORDER`, requests as JSON lines.

It has imported all that an operation needs, and has no thread and no connection, so that a child begins in a
millisecond. The child is armed (`recorder.c`), does its work, and ends with the exit status of the command line, or is
killed where the request says. The reply holds how it ended and the labels of its kill points.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import tempfile
import traceback
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from ocs_drivers import open_switch
from ocs_drivers.engine.device_lock import find_lock_directory
from testbed.cli.output import describe_error
from testbed.lab.inventory import load_lab
from testbed.lab.model import Lab
from testbed.leases.choice import select_lease
from testbed.leases.listing import read_leases
from testbed.leases.model import find_parts
from testbed.leases.store import LeaseStore
from testbed.operate.change_file import (
    ObservedState,
    make_change_document,
    observe_plan,
    read_change,
    write_change,
)
from testbed.operate.design import Design, build_design, build_intent_design
from testbed.operate.intent import TopologySource, load_intents, select_in_force
from testbed.operate.journal import open_journal
from testbed.operate.model import LabPlan
from testbed.operate.proof import judge  # noqa: F401 - imported by a session when it is needed first
from testbed.operate.recovery import resume as recovery
from testbed.operate.recovery.resume import ResumeResult, find_unfinished
from testbed.operate.recovery.rollback import find_rollback_target, roll_back
from testbed.operate.session import LabSession
from testbed.operate.unfinished import find_unfinished_operations
from testbed.storage.address import get_database_address

Request = dict[str, Any]


@cache
def lab_of(path: str) -> Lab:
    """Return the lab of a file; a child finds it in the memory that it was forked with."""
    return load_lab(path)


@cache
def design_of(path: str, *, simplex: bool) -> Design:
    return build_design(lab_of(path), simplex=simplex)


@cache
def warm(path: str) -> None:
    """Do once here what every child would do again: imports and compiled queries; no device is changed."""
    with tempfile.TemporaryDirectory() as runs, ExitStack() as stack:
        session = session_of({"lab": path, "runs": runs}, stack)
        design = design_of(path, simplex=True)
        session.plan(design)
        session.prove(design_of(path, simplex=False))
        with open_journal(runs) as journal, journal.open_operation("warm"):
            journal.find_open_steps()


def session_of(request: Request, stack: ExitStack) -> LabSession:
    lab = lab_of(request["lab"])
    switches = {one.name: stack.enter_context(open_switch(one.address)) for one in lab.switches}
    journal = stack.enter_context(open_journal(request["runs"]))
    return LabSession(lab, switches, None, journal)


def apply(request: Request) -> dict[str, Any]:
    """Bring a topology into force: as options name it, or as an epoch holds it."""
    with ExitStack() as stack:
        session = session_of(request, stack)
        if "epoch" in request:
            intents = load_intents(request["runs"], session.lab.name)
            (intent,) = [one for one in intents if one.epoch == request["epoch"]]
            _, design = build_intent_design(session.lab, intent)
            topology_source = intent.topology_source
        else:
            design = design_of(request["lab"], simplex=request["simplex"])
            topology_source = TopologySource("--simplex" if request["simplex"] else "--method geometric")
        brought = session.bring_up(design, topology_source=topology_source)
        return {"verified": brought.verify_report.ok, "changed": brought.plan.has_changes}


def resume(request: Request) -> dict[str, Any]:
    """Go on with the newest operation that ended too early, as `testbed resume` does."""
    lab = lab_of(request["lab"])
    left = find_unfinished(request["runs"], lab, None)
    resumed = ResumeResult(None, "none", "nothing is unfinished")
    if left:
        with ExitStack() as stack:
            session = session_of(request, stack)
            design = build_intent_design(lab, left.intent)[1] if left.intent else None
            resumed = recovery.resume(session, left, design)
    still = [one.format_line() for one in find_unfinished_operations(request["runs"], lab)]
    return {"state": resumed.state, "reason": resumed.reason, "still": still}


def rollback(request: Request) -> dict[str, Any]:
    """Go back to the verified epoch before the current one, as `testbed rollback` does."""
    lab = lab_of(request["lab"])
    current, target = find_rollback_target(request["runs"], lab, None)
    with ExitStack() as stack:
        session = session_of(request, stack)
        brought = roll_back(session, target, current, build_intent_design(lab, target)[1])
    return {"verified": brought.verify_report.ok, "changed": brought.plan.has_changes, "to": target.epoch}


def queue(request: Request) -> dict[str, Any]:
    """Ask twice for the whole lab: the first lease is granted, the second waits for it."""
    with open_journal(request["runs"]) as journal:
        store = LeaseStore(journal.database, lab_of(request["lab"]).name)
        parts = find_parts(lab_of(request["lab"]), ())
        return {"leases": [store.request((), parts).state for _ in range(2)]}


def lease(request: Request) -> dict[str, Any]:
    """Let somebody else ask for the whole lab, for half an hour."""
    with open_journal(request["runs"]) as journal:
        lab = lab_of(request["lab"])
        store = LeaseStore(journal.database, lab.name, owner="somebody@elsewhere")
        return {"state": store.request((), find_parts(lab, ()), ttl_s=1800.0).state}


def hand_over(request: Request) -> dict[str, Any]:
    """Give the first lease back, which grants the second, and apply or resume under that one."""
    lab = lab_of(request["lab"])
    with open_journal(request["runs"]) as journal:
        first, second = read_leases(get_database_address(request["runs"]), lab.name, includes_ended=True)[:2]
        if first.is_held:
            LeaseStore(journal.database, lab.name).release(first.id)
    select_lease(second.id)
    done = (resume if request.get("resume") else apply)(request)
    leases = read_leases(get_database_address(request["runs"]), lab.name)
    return done | {"held": [one.token for one in leases if one.is_held]}


def write(request: Request) -> dict[str, Any]:
    """Plan a topology and write the change, as `testbed plan --out` does."""
    with ExitStack() as stack:
        session = session_of(request, stack)
        design = design_of(request["lab"], simplex=request["simplex"])
        plan = session.plan(design)
        observed = observed_now(request, session, plan)
        document = make_change_document(session.lab, design, TopologySource("change"), plan, observed)
        write_change(request["file"], document)
        return {"changed": plan.has_changes}


def apply_change(request: Request) -> dict[str, Any]:
    """Apply a change file while the lab is as it was, as `testbed apply --change` does."""
    change = read_change(request["file"])
    with ExitStack() as stack:
        session = session_of(request, stack)
        _, design = build_intent_design(session.lab, change.intent)
        plan = session.plan(design)
        change.check_current(plan, observed_now(request, session, plan))
        brought = session.carry_out(design, plan, topology_source=change.intent.topology_source)
        return {"verified": brought.verify_report.ok, "changed": plan.has_changes}


def observed_now(request: Request, session: LabSession, plan: LabPlan) -> ObservedState:
    epochs = [one.epoch for one in select_in_force(load_intents(request["runs"], session.lab.name))]
    return observe_plan(plan, epochs=epochs, revision=session.lab.revision)


OPERATIONS = {
    "apply": apply,
    "apply_change": apply_change,
    "hand_over": hand_over,
    "lease": lease,
    "queue": queue,
    "resume": resume,
    "rollback": rollback,
    "write": write,
}


def child(request: Request, recorder: ctypes.CDLL, log: int, answer: int) -> None:
    """Do what was asked for and end this process; never returns."""
    code = 70
    try:
        places = (request["runs"], str(find_lock_directory()))
        recorder.crash_clock(ctypes.c_long(request.get("clock_s", 0)))
        recorder.crash_arm(log, request.get("kill", "").encode(), *(place.encode() for place in places))
        reply: dict[str, Any] = OPERATIONS[request["do"]](request)
        code = 0
    except Exception as error:  # noqa: BLE001 - told to the test that asked
        reply = {"error": describe_error(error), "trace": traceback.format_exc()}
        code = 1
    finally:
        os.write(answer, json.dumps(reply, default=str).encode())
        os._exit(code)


def serve(request: Request, recorder: ctypes.CDLL) -> dict[str, Any]:
    warm(request["lab"])
    with tempfile.TemporaryFile() as log, tempfile.TemporaryFile() as answer:
        number = os.fork()
        if not number:
            child(request, recorder, log.fileno(), answer.fileno())
        _, status, usage = os.wait4(number, 0)
        for stream in (log, answer):
            stream.seek(0)
        labels = log.read().decode().splitlines()
        reply = answer.read()
    cpu_s = usage.ru_utime + usage.ru_stime
    ended = {"code": os.waitstatus_to_exitcode(status), "labels": labels, "cpu_s": cpu_s}
    return ended | (json.loads(reply) if reply else {})


def main() -> None:
    recorder = ctypes.CDLL(sys.argv[1])
    gc.freeze()
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(serve(json.loads(line), recorder)), flush=True)


if __name__ == "__main__":
    assert Path(sys.argv[1]).exists()
    main()

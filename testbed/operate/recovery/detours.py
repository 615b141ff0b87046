"""Resuming a repair that moves no circuit: what is lost is looked at again, and hosts are led around it.

Its journal holds no goal: routes around fibres that were lost an hour ago help nobody when others are lost by now.
"""

from __future__ import annotations

from testbed.operate.recovery.records import named, operations_of
from testbed.operate.recovery.resume import Resumed, concluded, with_findings
from testbed.operate.repair import LabRepair, carry_out_detours, not_in_force
from testbed.operate.session import LabSession, Note
from testbed.operate.unfinished import Unfinished


def resume_detours(
    session: LabSession, left: Unfinished, planned: LabRepair | None, note: Note = lambda _text: None
) -> Resumed:
    """Go on with a repair that only leads hosts around lost fibres; `planned` is the repair of what is lost now.

    Hosts get their routes, those that hold them are left alone, and the links that carry are proven. It stops as
    unknown where no fibre is lost any more, or circuits are to move: that is another repair.
    Raises `HostError`, and the switches' errors.
    """
    record = named(operations_of(session.writable.directory, session.lab.name), left.operation)
    if record and record.has_sent_nothing:
        return Resumed(left.operation, "none", "it had sent nothing: give its command again")
    if planned is None:
        why = "no fibre is lost any more: `testbed apply` gives the hosts the routes of the topology again"
    elif planned.strange:
        why = not_in_force(planned.strange)
    elif planned.repatched is not None or planned.running is None:
        why = "what is lost now takes another repair: see `testbed repair`, then `testbed repair --apply`"
    else:
        plan = session.plan(planned.running)
        repaired = carry_out_detours(session, planned, plan, note, again=left.operation)
        if repaired.verified.ok:
            return concluded(session, left, "verified", "finished and proven")
        return with_findings(session, left, repaired.verified)
    return concluded(session, left, "unknown", f"{why}. Nothing was sent")

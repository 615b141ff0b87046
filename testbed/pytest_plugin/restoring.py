"""Part of a lab before a test, and putting it back: circuits as they were read, then the epochs in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ocs_drivers.model import CrossConnects
from testbed.design.model import Wiring
from testbed.errors import VerifyFailed
from testbed.lab.model import Lab
from testbed.operate.design import design_of_intent
from testbed.operate.engine.planned import goal_text
from testbed.operate.intent import Intent, in_force, stored_intents
from testbed.operate.model import LabPlan, SwitchPlan
from testbed.operate.plan import scope_of
from testbed.operate.session import Change, LabSession

if TYPE_CHECKING:
    from testbed.pytest_plugin.lab_of_test import LabOfTest

_STOOD = frozenset({"applied", "verified"})


@dataclass(frozen=True, slots=True)
class Before:
    """Circuits of the hosts of a test by switch, and the epochs in force on these hosts alone, the newest first."""

    circuits: Mapping[str, CrossConnects]
    epochs: tuple[Intent, ...]

    @classmethod
    def of(cls, given: LabOfTest, lab: Lab) -> Before:
        """Return what the hosts of a test are joined by. Raises what drivers raise."""
        with given.session() as session:
            seen = {name: switch.read().connections for name, switch in session.switches.items()}
        names = {host.name for host in given.lab.hosts}
        intents = in_force(stored_intents(given.runs_dir, lab.name))
        epochs = (one for one in intents if names.issuperset(one.hosts) and one.state in _STOOD)
        return cls({name: _in_scope(given.lab, name, held) for name, held in seen.items()}, tuple(epochs))

    def put_back(self, given: LabOfTest, lab: Lab, test: str) -> None:
        """Make the circuits that were, and bring the epochs that were in force into force again, with their routes.

        Raises `VerifyFailed` where an epoch that was verified is not proven again, and what applying raises.
        """
        with given.session() as session:
            parts = (_part(given.lab, session, name, held) for name, held in self.circuits.items())
            plan = LabPlan(_no_wiring(given.lab), (), tuple(parts))
            if plan.has_changes:
                addresses = {name: switch.address for name, switch in session.switches.items()}
                goal = goal_text({part.switch: (addresses[part.switch], part) for part in plan.switches})
                with session.operation("trial", f"put back after {test}", goal=goal):
                    session.apply(plan)
        now = {one.epoch for one in in_force(stored_intents(given.runs_dir, lab.name))}
        for intent in reversed(self.epochs):
            if intent.epoch not in now:
                self._bring_back(intent, given, lab, test)

    @staticmethod
    def _bring_back(intent: Intent, given: LabOfTest, lab: Lab, test: str) -> None:
        here, design = design_of_intent(lab, intent)
        change = Change("rollback", f"back to epoch {intent.epoch} after {test}")
        with replace(given, lab=here).session() as session:
            brought = session.carry_out(design, session.plan(design), stated=intent.stated, change=change)
        if intent.state == "verified" and not brought.verified.ok:
            found = "; ".join(finding.detail for finding in brought.verified.findings)
            raise VerifyFailed(
                f"epoch {intent.epoch} of lab '{lab.name}' is in force again and not proven: {found}"
            )


def _in_scope(lab: Lab, switch: str, held: CrossConnects) -> CrossConnects:
    scope = scope_of(lab, lab.switch(switch))
    return held if scope is None else CrossConnects({i: o for i, o in held.pairs if i in scope})


def _part(lab: Lab, session: LabSession, name: str, target: CrossConnects) -> SwitchPlan:
    """Return the steps that take a switch back to what it held."""
    switch, scope = session.switches[name], scope_of(lab, lab.switch(name))
    seen = switch.read()
    return SwitchPlan(name, target, scope, seen, switch.plan(target, seen, scope))


def _no_wiring(lab: Lab) -> Wiring:
    """Return a wiring of these hosts without a link: the plan is of circuits that switches held, not of links."""
    return Wiring(len(lab.hosts), 1, simplex=False, links=())

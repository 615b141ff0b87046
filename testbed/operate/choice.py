"""The topology of a command: the one that its options name, or else the topology that is stored for the lab."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.design.topology.circulants import parse_demands
from testbed.design.topology.strides import Method
from testbed.errors import IntentError, JournalError
from testbed.lab.inventory import load_lab
from testbed.lab.model import Lab, make_shard
from testbed.lab.simulated.lifecycle import find_running_lab
from testbed.operate.design import Design, build_design, build_intent_design, build_plan_design, find_plan_lab
from testbed.operate.intent import Intent, TopologySource, load_intents, select_in_force
from testbed.operate.named_topology import NamedTopology
from testbed.operate.unfinished import IncompleteOperation, find_unfinished_or_error

if TYPE_CHECKING:
    from testbed.design.plans.file import Plan
    from testbed.operate.model import LinkFinding


@dataclass(frozen=True, slots=True)
class DesignChoice:
    """The design that a command works on, for the hosts in `lab`.

    `intent` is the stored epoch of the design, or None if it has none. `stored_intent` is the epoch in force on these
    hosts, even if another design was chosen. `parallel_intents` holds the epochs in force on other hosts. `note` says
    why no stored topology was used. `unfinished` holds the unfinished operations.
    """

    lab: Lab
    design: Design
    topology_source: TopologySource
    intent: Intent | None = None
    stored_intent: Intent | None = None
    parallel_intents: tuple[Intent, ...] = ()
    note: str = ""
    unfinished: tuple[IncompleteOperation, ...] = ()

    @property
    def has_lab_file_changed(self) -> bool:
        """True if the lab file has changed since the chosen epoch was applied."""
        return self.intent is not None and self.intent.revision != self.lab.revision

    @property
    def is_other_topology(self) -> bool:
        """True if the chosen topology is not the stored topology and not the topology that the stored one repairs."""
        if self.stored_intent is None:
            return False
        return self.intent is None or self.intent.epoch not in (
            self.stored_intent.epoch,
            self.stored_intent.topology_source.repaired_epoch,
        )

    def append_apply_command(self, text: str) -> str:
        """Return the text with each bare `testbed apply` replaced by the command that applies this design."""
        options = f"--epoch {self.intent.epoch}" if self.intent else self.topology_source.options_text
        return text.replace("`testbed apply`", f"`testbed apply {options}`" if options else "`testbed apply`")

    def make_findings_json(self, findings: Iterable[LinkFinding]) -> list[dict[str, Any]]:
        """Return findings for JSON documents. An advised `testbed apply` names this design."""
        return [
            finding.as_json()
            | {
                "detail": self.append_apply_command(finding.detail),
                "hint": self.append_apply_command(finding.hint),
            }
            for finding in findings
        ]

    def json(self) -> dict[str, Any]:
        """Return the keys that every document has: chosen epoch, epoch in force, and unfinished operations."""
        return {
            "epoch": self.intent.epoch if self.intent else None,
            "epoch_state": self.intent.status if self.intent else None,
            "stored_epoch": self.stored_intent.epoch if self.stored_intent else None,
            "lab_file_changed": self.has_lab_file_changed,
            "unfinished": [operation.json() for operation in self.unfinished],
        }

    def describe_unfinished(self) -> list[str]:
        """Return a line for each unfinished operation."""
        return [operation.format_line() for operation in self.unfinished]

    def format_heading(self) -> str:
        """Return the part of the first line that names the chosen epoch or topology."""
        options = (
            f"named: {self.topology_source.options_text}"
            if self.topology_source.options_text
            else "nothing stored or named: the default"
        )
        topology = self.intent.describe() if self.intent else options
        if self.stored_intent and self.is_other_topology:
            return f"{topology}; NOT WHAT IS STORED, {self.stored_intent.describe()}"
        return topology

    def format_warnings(self) -> list[str]:
        """Return warnings about the chosen design, one per line."""
        lines = [self.note] if self.note else []
        if self.topology_source.plan_text is not None and '"routes"' not in self.topology_source.plan_text:
            lines.append(
                "the plan has no routes: they are computed now; `testbed optimise` writes plans with routes"
            )
        if self.is_other_topology:
            lines.append(
                "the lab is compared with the named topology, not with the stored one: a difference may be a "
                "circuit of the stored topology instead of a faulty fibre"
            )
        if self.intent and self.has_lab_file_changed:
            lines.append(self._describe_change(self.intent))
        lines += [
            f"{intent.describe()} is also in force, on {', '.join(intent.hosts)}"
            for intent in self.parallel_intents
        ]
        if self.intent and self.intent.is_under_way:
            lines.append(
                f"an apply of epoch {self.intent.epoch} is running: wait for it, then run this command again"
            )
        return lines

    def _describe_change(self, intent: Intent) -> str:
        is_same_file = intent.lab_file == str(self.lab.path.absolute())
        problem = "has changed since" if is_same_file else f"is not {intent.lab_file}, with which"
        applied_text = (
            f"epoch {intent.epoch} was applied (revision {intent.revision}, now {self.lab.revision})"
        )
        return (
            f"lab file {self.lab.path} {problem} {applied_text}; see `testbed plan`, then `testbed "
            f"apply --epoch {intent.epoch}`"
        )

    def plan(self) -> Plan | None:
        """Return the plan file of the design, or None if the design comes from options or the default."""
        if self.topology_source.plan_text is None:
            return None
        import json

        from testbed.design.plans.file import parse_plan

        return parse_plan(json.loads(self.topology_source.plan_text), self.topology_source.options_text)


def choose_design(
    lab: Lab, named_topology: NamedTopology, runs_dir: Path, *, ignores_repair: bool = False
) -> DesignChoice:
    """Return the design that the options name, or else the stored design, or else the default design.

    If the options name only hosts, the stored design must be in force on exactly these hosts. With `ignores_repair`,
    a stored repair yields the topology that the repair replaced. Raises `PlanFileError`, `IntentError`,
    `TopologyError`, and `JournalError` if no topology is named and the stored one cannot be read.
    """
    stored_intents: tuple[Intent, ...] = ()
    note = ""
    try:
        stored_intents = load_intents(runs_dir, lab.name)
    except JournalError as error:
        if not named_topology.has_topology:
            raise
        note = str(error)
    intent = _find_stored(lab, named_topology, stored_intents, runs_dir)
    if intent is not None:
        if ignores_repair and intent.topology_source.repaired_epoch is not None:
            intent = _find_epoch(lab, intent.topology_source.repaired_epoch, stored_intents, runs_dir)
        job_lab, design = build_intent_design(lab, intent)
        parallel_intents = tuple(
            other_intent
            for other_intent in select_in_force(stored_intents)
            if set(other_intent.hosts).isdisjoint(intent.hosts)
        )
        unfinished_operations = find_unfinished_or_error(runs_dir, lab)
        return DesignChoice(
            job_lab,
            design,
            intent.topology_source,
            intent,
            _find_current(stored_intents, job_lab),
            parallel_intents,
            unfinished=unfinished_operations,
        )
    job_lab, design, topology_source = build_named_design(lab, named_topology)
    if not (named_topology.has_topology or note):
        hosts_text = f"hosts {', '.join(named_topology.hosts)} of " if named_topology.hosts else ""
        note = f"no topology of {hosts_text}lab '{lab.name}' is stored in {runs_dir}: the default one is used"
    current_intent = _find_current(stored_intents, job_lab)
    repaired_epoch = current_intent.topology_source.repaired_epoch if current_intent else None
    candidates = [
        candidate
        for candidate in stored_intents
        if candidate is current_intent or candidate.epoch == repaired_epoch
    ]
    matching_intent = next(
        (candidate for candidate in candidates if _is_same_design(candidate, job_lab, design)), None
    )
    return DesignChoice(
        job_lab,
        design,
        topology_source,
        matching_intent,
        current_intent,
        (),
        note,
        find_unfinished_or_error(runs_dir, lab),
    )


def find_running_design(
    lab_file: Path, named_topology: NamedTopology, runs_dir: Path, *, ignores_repair: bool = False
) -> DesignChoice:
    """Load a lab file, find its running lab, and return `choose_design` for it. Raises also `LabFileError`."""
    return choose_design(
        find_running_lab(load_lab(lab_file)), named_topology, runs_dir, ignores_repair=ignores_repair
    )


def choose_apply_design(lab_file: Path, named_topology: NamedTopology, runs_dir: Path) -> DesignChoice:
    """Return the design to apply: the named design, or else the stored design, or else the default design.

    Raises what `choose_design` raises, and `JournalError` even if a topology is named.
    """
    lab = find_running_lab(load_lab(lab_file))
    # An apply writes to this journal. If it cannot be read, fail before anything is planned.
    load_intents(runs_dir, lab.name)
    if named_topology.epoch is None and named_topology.has_topology:
        job_lab, design, topology_source = build_named_design(lab, named_topology)
        return DesignChoice(job_lab, design, topology_source)
    return choose_design(lab, named_topology, runs_dir)


def describe_apply_effect(choice: DesignChoice, named_topology: NamedTopology, runs_dir: Path) -> list[str]:
    """Return a line that says which epoch an apply installs again or replaces, or no line if it does neither."""
    current_intent = _find_current(load_intents(runs_dir, choice.lab.name), choice.lab)
    if choice.intent and not named_topology.has_topology:
        option_hint = "another one is named by --epoch, --method, --simplex, --demand or --plan"
        return [f"installs {choice.intent.describe()} again, since no topology is named; {option_hint}"]
    if current_intent is None or _is_same_design(current_intent, choice.lab, choice.design):
        return []
    return [
        f"replaces {current_intent.describe()}; `testbed apply --epoch {current_intent.epoch}` brings it back"
    ]


def build_named_design(lab: Lab, named_topology: NamedTopology) -> tuple[Lab, Design, TopologySource]:
    """Return the lab of a topology named by options or by a plan file, its design, and the words to store with it."""
    if named_topology.plan_file is None:
        method: Method = named_topology.method or "geometric"
        demands = parse_demands(named_topology.demand)
        job_lab = make_shard(lab, named_topology.hosts) if named_topology.hosts else lab
        design = build_design(job_lab, simplex=named_topology.simplex, method=method, demands=demands)
        return job_lab, design, TopologySource(named_topology.options_text)
    from testbed.design.plans.file import read_plan  # imported late: it imports all workloads

    plan = read_plan(named_topology.plan_file)
    job_lab = find_plan_lab(lab, plan)
    plan_text = named_topology.plan_file.read_text(encoding="utf-8")
    return (
        job_lab,
        build_plan_design(job_lab, plan),
        TopologySource(named_topology.options_text, plan_text=plan_text),
    )


def _find_stored(
    lab: Lab, named_topology: NamedTopology, stored_intents: tuple[Intent, ...], runs_dir: Path
) -> Intent | None:
    """Return the stored epoch that the options select, or None if they name a topology. Raises `IntentError`."""
    if named_topology.epoch is not None:
        return _find_epoch(lab, named_topology.epoch, stored_intents, runs_dir)
    if named_topology.has_topology or not stored_intents:
        return None
    if not named_topology.hosts:
        return stored_intents[0]
    hosts = sorted(named_topology.hosts)
    return next((intent for intent in select_in_force(stored_intents) if sorted(intent.hosts) == hosts), None)


def _find_epoch(lab: Lab, epoch: int, stored_intents: tuple[Intent, ...], runs_dir: Path) -> Intent:
    """Return the epoch with this number. Raises `IntentError`."""
    intent = next((candidate for candidate in stored_intents if candidate.epoch == epoch), None)
    if intent is None:
        known_epochs = f"they are 1 to {stored_intents[0].epoch}" if stored_intents else "none was stored yet"
        hint = "leave out --epoch, or give the --runs-dir of its apply"
        raise IntentError(f"lab '{lab.name}' has no epoch {epoch} in {runs_dir}: {known_epochs}; {hint}")
    return intent


def _find_current(stored_intents: tuple[Intent, ...], lab: Lab) -> Intent | None:
    """Return the epoch in force on any of these hosts."""
    hosts = {host.name for host in lab.hosts}
    return next(
        (intent for intent in select_in_force(stored_intents) if not hosts.isdisjoint(intent.hosts)), None
    )


def _is_same_design(intent: Intent, lab: Lab, design: Design) -> bool:
    hosts = tuple(host.name for host in lab.hosts)
    return intent.hosts == hosts and set(intent.wiring.links) == set(design.wiring.links)

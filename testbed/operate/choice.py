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

    `intent` is the stored epoch of the design, or None if it has none. `stored` is the epoch in force on these hosts,
    even if another design was chosen. `parallel_intents` holds the epochs in force on other hosts. `note` says why no
    stored topology was used. `unfinished` holds the unfinished operations.
    """

    lab: Lab
    design: Design
    topology_source: TopologySource
    intent: Intent | None = None
    stored: Intent | None = None
    parallel_intents: tuple[Intent, ...] = ()
    note: str = ""
    unfinished: tuple[IncompleteOperation, ...] = ()

    @property
    def lab_file_changed(self) -> bool:
        """True if the lab file has changed since the chosen epoch was applied."""
        return self.intent is not None and self.intent.revision != self.lab.revision

    @property
    def is_other_topology(self) -> bool:
        """True if the chosen topology is not the stored topology and not the topology that the stored one repairs."""
        if self.stored is None:
            return False
        return self.intent is None or self.intent.epoch not in (
            self.stored.epoch,
            self.stored.topology_source.repairs,
        )

    def append_apply_command(self, text: str) -> str:
        """Return the text with each bare `testbed apply` replaced by the command that applies this design."""
        words = f"--epoch {self.intent.epoch}" if self.intent else self.topology_source.words
        return text.replace("`testbed apply`", f"`testbed apply {words}`" if words else "`testbed apply`")

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
            "stored_epoch": self.stored.epoch if self.stored else None,
            "lab_file_changed": self.lab_file_changed,
            "unfinished": [unfinished.json() for unfinished in self.unfinished],
        }

    def describe_unfinished(self) -> list[str]:
        """Return a line for each unfinished operation."""
        return [unfinished.line() for unfinished in self.unfinished]

    def heading(self) -> str:
        """Return the part of the first line that names the chosen epoch or topology."""
        options = (
            f"named: {self.topology_source.words}"
            if self.topology_source.words
            else "nothing stored or named: the default"
        )
        topology = self.intent.describe() if self.intent else options
        if self.stored and self.is_other_topology:
            return f"{topology}; NOT WHAT IS STORED, {self.stored.describe()}"
        return topology

    def lines(self) -> list[str]:
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
        if self.intent and self.lab_file_changed:
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
        same_file = intent.lab_file == str(self.lab.path.absolute())
        problem = "has changed since" if same_file else f"is not {intent.lab_file}, with which"
        application = (
            f"epoch {intent.epoch} was applied (revision {intent.revision}, now {self.lab.revision})"
        )
        return (
            f"lab file {self.lab.path} {problem} {application}; see `testbed plan`, then `testbed "
            f"apply --epoch {intent.epoch}`"
        )

    def plan(self) -> Plan | None:
        """Return the plan file of the design, or None if the design comes from options or the default."""
        if self.topology_source.plan_text is None:
            return None
        import json

        from testbed.design.plans.file import parse_plan

        return parse_plan(json.loads(self.topology_source.plan_text), self.topology_source.words)


def choose_design(
    lab: Lab, named: NamedTopology, runs_dir: Path, *, before_repair: bool = False
) -> DesignChoice:
    """Return the design that the options name, or else the stored design, or else the default design.

    If the options name only hosts, the stored design must be in force on exactly these hosts. With `before_repair`,
    a stored repair yields the topology that the repair replaced. Raises `PlanFileError`, `IntentError`,
    `TopologyError`, and `JournalError` if no topology is named and the stored one cannot be read.
    """
    stored: tuple[Intent, ...] = ()
    note = ""
    try:
        stored = load_intents(runs_dir, lab.name)
    except JournalError as error:
        if not named.has_topology:
            raise
        note = str(error)
    intent = _find_stored(lab, named, stored, runs_dir)
    if intent is not None:
        if before_repair and intent.topology_source.repairs is not None:
            intent = _find_epoch(lab, intent.topology_source.repairs, stored, runs_dir)
        job_lab, design = build_intent_design(lab, intent)
        parallel_intents = tuple(
            other_intent
            for other_intent in select_in_force(stored)
            if set(other_intent.hosts).isdisjoint(intent.hosts)
        )
        unfinished = find_unfinished_or_error(runs_dir, lab)
        return DesignChoice(
            job_lab,
            design,
            intent.topology_source,
            intent,
            _find_current(stored, job_lab),
            parallel_intents,
            unfinished=unfinished,
        )
    job_lab, design, topology_source = state_design(lab, named)
    if not (named.has_topology or note):
        hosts_text = f"hosts {', '.join(named.hosts)} of " if named.hosts else ""
        note = f"no topology of {hosts_text}lab '{lab.name}' is stored in {runs_dir}: the default one is used"
    current = _find_current(stored, job_lab)
    repaired_epoch = current.topology_source.repairs if current else None
    candidates = [
        candidate for candidate in stored if candidate is current or candidate.epoch == repaired_epoch
    ]
    match = next((candidate for candidate in candidates if _is_same(candidate, job_lab, design)), None)
    return DesignChoice(
        job_lab, design, topology_source, match, current, (), note, find_unfinished_or_error(runs_dir, lab)
    )


def find_running_design(
    lab_file: Path, named: NamedTopology, runs_dir: Path, *, before_repair: bool = False
) -> DesignChoice:
    """Load a lab file, find its running lab, and return `choose_design` for it. Raises also `LabFileError`."""
    return choose_design(find_running_lab(load_lab(lab_file)), named, runs_dir, before_repair=before_repair)


def choose_apply_design(lab_file: Path, named: NamedTopology, runs_dir: Path) -> DesignChoice:
    """Return the design to apply: the named design, or else the stored design, or else the default design.

    Raises what `choose_design` raises, and `JournalError` even if a topology is named.
    """
    lab = find_running_lab(load_lab(lab_file))
    load_intents(runs_dir, lab.name)  # fail before anything is planned: an apply writes to this journal
    if named.epoch is None and named.has_topology:
        job_lab, design, topology_source = state_design(lab, named)
        return DesignChoice(job_lab, design, topology_source)
    return choose_design(lab, named, runs_dir)


def describe_apply_effect(choice: DesignChoice, named: NamedTopology, runs_dir: Path) -> list[str]:
    """Return a line that says which epoch an apply installs again or replaces, or no line if it does neither."""
    current = _find_current(load_intents(runs_dir, choice.lab.name), choice.lab)
    if choice.intent and not named.has_topology:
        option_hint = "another one is named by --epoch, --method, --simplex, --demand or --plan"
        return [f"installs {choice.intent.describe()} again, since no topology is named; {option_hint}"]
    if current is None or _is_same(current, choice.lab, choice.design):
        return []
    return [f"replaces {current.describe()}; `testbed apply --epoch {current.epoch}` brings it back"]


def state_design(lab: Lab, named: NamedTopology) -> tuple[Lab, Design, TopologySource]:
    """Return the lab of a topology named by options or by a plan file, its design, and the words to store with it."""
    if named.plan_file is None:
        method: Method = named.method or "geometric"
        demands = parse_demands(named.demand)
        job_lab = make_shard(lab, named.hosts) if named.hosts else lab
        design = build_design(job_lab, simplex=named.simplex, method=method, demands=demands)
        return job_lab, design, TopologySource(named.words)
    from testbed.design.plans.file import read_plan  # imports all workloads

    plan = read_plan(named.plan_file)
    job_lab = find_plan_lab(lab, plan)
    text = named.plan_file.read_text(encoding="utf-8")
    return job_lab, build_plan_design(job_lab, plan), TopologySource(named.words, plan_text=text)


def _find_stored(lab: Lab, named: NamedTopology, stored: tuple[Intent, ...], runs_dir: Path) -> Intent | None:
    """Return the stored epoch that the options select, or None if they name a topology. Raises `IntentError`."""
    if named.epoch is not None:
        return _find_epoch(lab, named.epoch, stored, runs_dir)
    if named.has_topology or not stored:
        return None
    if not named.hosts:
        return stored[0]
    hosts = sorted(named.hosts)
    return next((intent for intent in select_in_force(stored) if sorted(intent.hosts) == hosts), None)


def _find_epoch(lab: Lab, epoch: int, stored: tuple[Intent, ...], runs_dir: Path) -> Intent:
    """Return the epoch with this number. Raises `IntentError`."""
    intent = next((candidate for candidate in stored if candidate.epoch == epoch), None)
    if intent is None:
        known_epochs = f"they are 1 to {stored[0].epoch}" if stored else "none was stored yet"
        hint = "leave out --epoch, or give the --runs-dir of its apply"
        raise IntentError(f"lab '{lab.name}' has no epoch {epoch} in {runs_dir}: {known_epochs}; {hint}")
    return intent


def _find_current(stored: tuple[Intent, ...], lab: Lab) -> Intent | None:
    """Return the epoch in force on any of these hosts."""
    hosts = {host.name for host in lab.hosts}
    return next((intent for intent in select_in_force(stored) if not hosts.isdisjoint(intent.hosts)), None)


def _is_same(intent: Intent, lab: Lab, design: Design) -> bool:
    hosts = tuple(host.name for host in lab.hosts)
    return intent.hosts == hosts and set(intent.wiring.links) == set(design.wiring.links)

"""`testbed path`: follow a packet from one host to another, as planned and as the kernels route it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Annotated

from testbed.commands.about import HostsFields, describe_findings, describe_hosts, make_heading_lines
from testbed.commands.context import CommandContext
from testbed.commands.declare import argument
from testbed.commands.documents import (
    EXIT_CHANGES,
    EXIT_DONE,
    Finding,
    make_key_metadata,
    yield_finding_lines,
)
from testbed.commands.groups import HostsCommand, TopologyCommand


@dataclass(frozen=True, kw_only=True)
class PathHop:
    """A link of the planned path. `patched` is None if its switch does not answer. Powers are None if not measured."""

    sender: str
    receiver: str
    switch: str
    input_port: int
    output_port: int
    patched: bool | None
    input_dbm: float | None
    output_dbm: float | None


@dataclass(frozen=True, kw_only=True)
class KernelHop:
    """A link that the kernel of a host chooses. `gateway` is the address of the next hop."""

    sender: str
    receiver: str
    gateway: str


@dataclass(frozen=True, kw_only=True)
class KernelPath:
    """The path of a packet by the kernels. `end` says why the packet does not arrive, or is empty."""

    hops: tuple[KernelHop, ...]
    end: str
    differs: bool


@dataclass(frozen=True, kw_only=True)
class PathDocument(HostsFields):
    """The path of a packet by plan and, unless hosts are modelled, by the kernels."""

    source: str = field(metadata=make_key_metadata("from"))
    target: str = field(metadata=make_key_metadata("to"))
    hops: tuple[PathHop, ...]
    kernel: KernelPath | None
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """2 if the two paths differ, or the switch of a hop does not answer."""
        is_unknown = any(hop.patched is None for hop in self.hops)
        return EXIT_CHANGES if is_unknown or (self.kernel and self.kernel.differs) else EXIT_DONE


@dataclass(frozen=True, kw_only=True)
class FollowPath(HostsCommand, TopologyCommand):
    """`testbed path`."""

    needs = "lab by option"
    source: Annotated[str, argument("Host that sends.", "A")]
    target: Annotated[str, argument("Host that receives.", "B")]

    def run(self, context: CommandContext) -> PathDocument:
        """Follow a packet. Raises `TopologyError` for a host that the lab file does not have."""
        from testbed.operate.choice import choose_design
        from testbed.operate.path import (
            describe_kernel_path,
            describe_path,
            find_node,
            follow_path,
            trace_kernel_path,
        )

        for name in (self.source, self.target):
            find_node(context.lab, name)  # refuse an unknown host even if no lab runs
        choice = choose_design(context.running_lab, self.named_topology, context.runs_dir)
        nodes = find_node(choice.lab, self.source), find_node(choice.lab, self.target)
        with context.open_session(choice.lab, self.hosts, skip_unreachable=True) as session:
            hops = follow_path(session, choice.design, *nodes)
            kernel_route = trace_kernel_path(session, choice.design, *nodes)
        findings = describe_findings(session.unreachable_findings)
        context.say(
            *make_heading_lines(choice, self.hosts),
            *choice.describe_unfinished(),
            *yield_finding_lines(findings),
        )
        context.say(*describe_path(hops), *describe_kernel_path(kernel_route))
        return PathDocument(
            **describe_hosts(choice, self.hosts),
            source=self.source,
            target=self.target,
            hops=tuple(PathHop(**asdict(hop)) for hop in hops),
            kernel=KernelPath(
                hops=tuple(KernelHop(**asdict(hop)) for hop in kernel_route.hops),
                end=kernel_route.stop_reason,
                differs=kernel_route.differs_from_plan,
            )
            if kernel_route
            else None,
            findings=findings,
        )

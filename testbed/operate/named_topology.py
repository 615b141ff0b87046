"""Topologies named by the options of a command: by strides, demands, hosts, a plan file, or an epoch's number."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from testbed.design.topology.strides import Method
from testbed.errors import IntentError, PlanFileError


@dataclass(frozen=True, slots=True)
class NamedTopology:
    """Options that name a topology. Without options, the stored topology is used.

    With `hosts` alone, the topology that is stored for these hosts is used. Raises `PlanFileError` and `IntentError`
    for options that exclude each other.
    """

    simplex: bool = False
    method: Method | None = None
    demand: tuple[str, ...] = ()
    plan_file: Path | None = None
    epoch: int | None = None
    hosts: tuple[str, ...] = ()
    """Hosts of the topology, in the order of its nodes; empty for all hosts of the lab."""

    def __post_init__(self) -> None:
        has_options = self.simplex or self.demand or self.method or self.hosts
        if self.plan_file and has_options:
            raise PlanFileError(
                f"--plan {self.plan_file} already sets the topology: leave out --simplex, --method, --demand "
                "and --hosts-of"
            )
        if self.epoch and (has_options or self.plan_file):
            raise IntentError(
                f"--epoch {self.epoch} already sets the topology: leave out --simplex, --method, --demand, "
                "--hosts-of and --plan"
            )

    @property
    def has_topology(self) -> bool:
        """True if the options name a topology, not only its hosts."""
        return bool(self.simplex or self.demand or self.method or self.plan_file or self.epoch)

    @property
    def options_text(self) -> str:
        """The options as on the command line, or "" without options."""
        words = ["--simplex"] if self.simplex else []
        words += [f"--method {self.method}"] if self.method else []
        words += [f"--demand {demand}" for demand in self.demand]
        words += [f"--hosts-of {','.join(self.hosts)}"] if self.hosts else []
        words += [f"--plan {self.plan_file}"] if self.plan_file else []
        return " ".join(words)

"""The lab of a test: apply a topology, verify it, run commands on hosts, set faults of twins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import HostError, LabStartError
from testbed.lab.model import Lab
from testbed.lab.simulated.lifecycle import HostsInUse

if TYPE_CHECKING:
    from testbed.design.topology.strides import Method
    from testbed.operate.design import Design
    from testbed.operate.model import VerifyReport
    from testbed.operate.session import BringUpReport, LabSession


@dataclass(slots=True)
class LabOfTest:
    """A lab for one test.

    `lab` holds its hosts and switches. Commands find it with `file`, `runs_dir` and `lease` (empty for the test's own
    simulated lab). `hosts` is `real`, `kernel` or `model`. `board` is the address of the board, empty if the test needs
    none. `control` maps twins to their control sockets.
    """

    lab: Lab
    file: Path
    runs_dir: Path
    hosts: HostsInUse
    lease: str = ""
    degree: int | None = None
    board: str = ""
    control: Mapping[str, str] = field(default_factory=dict)
    _design: Design | None = None

    @contextmanager
    def session(self) -> Iterator[LabSession]:
        """Open the lab for changes, under the lease of the test."""
        from testbed.leases.choice import get_selected_lease, select_lease
        from testbed.operate.journal import journal_in
        from testbed.operate.session import open_lab

        before = get_selected_lease()
        select_lease(self.lease)
        try:
            with (
                journal_in(self.runs_dir) as journal,
                open_lab(self.lab, journal, model_hosts=self.hosts == "model") as session,
            ):
                yield session
        finally:
            select_lease(before)

    def apply(self, *, simplex: bool = False, method: Method = "geometric") -> BringUpReport:
        """Patch a topology of all hosts, install its routes, and verify both. Raises the errors of `bring_up`."""
        from testbed.design.topology.circulants import find_topology
        from testbed.operate.design import degree_of, lay_out

        degree = self.degree or degree_of(self.lab)
        topology = find_topology(len(self.lab.hosts), degree, simplex=simplex, method=method)
        with self.session() as session:
            brought = session.bring_up(lay_out(self.lab, "test", topology))
        self._design = brought.design
        return brought

    def verify(self) -> VerifyReport:
        """Compare the lab with the last applied topology. Raises `LabStartError` if none was applied."""
        if self._design is None:
            raise LabStartError("nothing was applied to this lab: call testbed_lab.apply() first")
        with self.session() as session:
            return session.prove(self._design)

    def run(self, host: str, command: str) -> str:
        """Run a command on a host and return its standard output.

        Raises `HostError` if it fails, and for modelled hosts.
        """
        if self.hosts == "model":
            raise HostError(f"host {host} is only modelled and runs no commands: use --lab-hosts kernel")
        with self.session() as session:
            assert session.fleet is not None
            done = session.fleet.run({host: command})[host]
        if done.exit_status:
            raise HostError(
                f"{command!r} on {host} ended with {done.exit_status}: {done.stderr.strip()}", host=host
            )
        return str(done.stdout)

    def ask_twin(self, twin: str, verb: str, **details: Any) -> dict[str, Any]:
        """Send a request to the control socket of a switch or of `plant`, and return its answer.

        Example: `ask_twin("plant", "cut", fibre="a/nic1:transmit")`. Raises `LabStartError` for an unknown twin.
        """
        from testbed.lab.control import send_request

        if twin not in self.control:
            known = ", ".join(self.control) or "none: the lab is real, or was started by somebody else"
            raise LabStartError(f"{twin!r} has no control socket; known are {known}")
        return send_request(self.control[twin], {"do": verb, **details})

"""The lab of a test: a `testbed.Lab` that also has a board. The test can set faults of its twins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.commands.groups import HostsChoice
from testbed.errors import LabStartError
from testbed.scripting.backends import Backend
from testbed.scripting.lab import TOPOLOGY_OPTIONS, Lab

if TYPE_CHECKING:
    from testbed.commands.lab.apply import ApplyDocument


class LabOfTest(Lab):
    """The lab that is leased for a test. Commands use only the `hosts` of the test.

    `board` is the address of the board, empty if the test needs none.
    """

    def __init__(
        self,
        backend: Backend,
        hosts: HostsChoice,
        really_move: str | None = None,
        *,
        hosts_of: Sequence[str] = (),
        board: str = "",
        control_by_twin: Mapping[str, str] | None = None,
    ) -> None:
        """Take the arguments of `Lab`, the address of the board, and the control sockets by twin."""
        super().__init__(backend, hosts, really_move, hosts_of=hosts_of)
        self.board = board
        self._control_by_twin = control_by_twin or {}

    @property
    def lab_file(self) -> Path:
        """The lab file. Raises `UsageError` for a lab of a service."""
        return self._backend.find_lab_file()

    def apply(self, **options: Any) -> ApplyDocument:
        """Patch a topology, install the hosts' routes, and verify both (`testbed apply`).

        Without options, apply the default topology, never a topology of an earlier test.
        """
        defaults = {"method": "geometric"} if TOPOLOGY_OPTIONS.isdisjoint(options) else {}
        return super().apply(**defaults | options)

    def ask_twin(self, twin: str, verb: str, **details: Any) -> dict[str, Any]:
        """Send a request to the control socket of a switch or of `plant`, and return its answer.

        Example: `ask_twin("plant", "cut", fibre="a/nic1:transmit")`. Raises `LabStartError` for an unknown twin.
        """
        from testbed.lab.control import send_request

        if twin not in self._control_by_twin:
            names = (
                ", ".join(self._control_by_twin) or "none: the lab is real, or was started by somebody else"
            )
            raise LabStartError(f"{twin!r} has no control socket; known are {names}")
        return send_request(self._control_by_twin[twin], {"do": verb, **details})

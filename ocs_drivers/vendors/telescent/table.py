"""The table of a Telescent in the types of the contract: circuits, unfit ports, the robot's queue. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ocs_drivers.engine import planning
from ocs_drivers.errors import OcsError, ProtocolDesync
from ocs_drivers.model import Capabilities, CrossConnects, PendingMove, PortState
from ocs_drivers.vendors.telescent.codec import Cell, CommandSet
from ocs_drivers.vendors.telescent.ports import Numbering


@dataclass(frozen=True, slots=True)
class Table:
    """All outputs of a frame as they were read at one moment.

    >>> cells = (Cell("AL", 1), Cell("CU", 0), Cell("UL", 2))
    >>> table = Table(cells, CommandSet())
    >>> table.connections, table.pending[0].pair, table.outputs[6]
    (CrossConnects({2: 4}), (1, 5), <PortState.LOCKED: 'locked'>)
    """

    cells: tuple[Cell, ...]
    commands: CommandSet

    @property
    def numbering(self) -> Numbering:
        """The numbers of the ports of a frame of this size."""
        return Numbering(len(self.cells))

    @property
    def connections(self) -> CrossConnects:
        """The circuits: those that are allocated, and those that the robot has yet to clear.

        Raises `ProtocolDesync` for a table that cannot be right.
        """
        pairs = [
            self._pair(output)
            for output, cell in enumerate(self.cells)
            if cell.is_allocated or self._is_clearing(cell)
        ]
        try:
            connections = CrossConnects(pairs)
            planning.check_target(connections, None, Capabilities(len(self.cells), len(self.cells)))
        except (ValueError, OcsError) as error:
            raise ProtocolDesync(f"the table cannot be right: {error}") from error
        return connections

    @property
    def pending(self) -> tuple[PendingMove, ...]:
        """Moves that the robot still has to do, as far as the table shows; it does not show whose they are."""
        making = [n for n, cell in enumerate(self.cells) if self._is_making(cell)]
        clearing = [n for n, cell in enumerate(self.cells) if self._is_clearing(cell)]
        return (
            *(PendingMove("connect", self._pair(output)) for output in making),
            *(PendingMove("disconnect", self._pair(output)) for output in clearing),
        )

    @property
    def outputs(self) -> dict[int, PortState]:
        """The state of every output, by our numbers."""
        return {self.numbering.output_port(n): self._state(cell) for n, cell in enumerate(self.cells)}

    def unfit(self, *, force: bool) -> dict[int, PortState]:
        """Return the outputs that cannot be used; with `force`, those that somebody has locked can."""
        return {
            port: state
            for port, state in self.outputs.items()
            if state is not PortState.ENABLED and not (force and state is PortState.LOCKED)
        }

    def _state(self, cell: Cell) -> PortState:
        """Return the state that a status means; letters that we do not know are a reason not to use the port."""
        if cell.is_free and cell.is_locked:
            return PortState.LOCKED
        known = cell.is_free or cell.is_allocated or self._is_making(cell) or self._is_clearing(cell)
        return PortState.ENABLED if known else PortState.FAILED

    def _pair(self, output: int) -> tuple[int, int]:
        return self.numbering.input_port(self.cells[output].number), self.numbering.output_port(output)

    def _is_making(self, cell: Cell) -> bool:
        return cell.status.startswith(self.commands.making)

    def _is_clearing(self, cell: Cell) -> bool:
        return cell.status.startswith(self.commands.clearing)

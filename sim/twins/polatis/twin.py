"""A Polatis switch as a device on the wire: SCPI and TL1 on TCP, and a control socket beside them."""

from __future__ import annotations

import asyncio
import itertools
import socket
import zlib

from sim.models.clock import Clock, RealClock
from sim.twins.control import ControlServer
from sim.twins.listener import Listener
from sim.twins.plant import Plant
from sim.twins.polatis.device import BootMode, SwitchDevice
from sim.twins.polatis.fault_board import FaultBoard
from sim.twins.polatis.faults import Faults
from sim.twins.polatis.line import Line
from sim.twins.polatis.matrix import Matrix, WhenOccupied
from sim.twins.polatis.panel import Panel
from sim.twins.polatis.scpi_errors import ScpiError
from sim.twins.polatis.scpi_front import ScpiFront
from sim.twins.polatis.scpi_syntax import LineReader
from sim.twins.polatis.tl1_front import Tl1Front
from sim.twins.polatis.transcript import Transcript

FIRMWARE = "6.5.2.18"
DEFAULT_SWITCH_TIME_S = 0.02

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class PolatisTwin:
    """One simulated switch: one state behind two wire languages, for several clients at once.

    `plant` gives it light and is told what it passes; `clock` is the time it lives in. Options that the
    published material leaves open: `when_occupied` (does ADD replace or refuse), `hitless` (do kept
    circuits keep their light over a whole-configuration command), `separate_lines` (are replies to
    chained queries joined by `;` or on separate lines). The serial number begins with SIM.
    """

    def __init__(
        self,
        name: str,
        inputs: int,
        outputs: int,
        *,
        plant: Plant,
        clock: Clock | None = None,
        switch_time_s: float = DEFAULT_SWITCH_TIME_S,
        boot_mode: BootMode = "DARK",
        user: str = "admin",
        password: str = "root",  # noqa: S107 - the factory account, and nothing but a simulator behind it
        when_occupied: WhenOccupied = "reject",
        hitless: bool = False,
        separate_lines: bool = False,
    ) -> None:
        self._clock = clock or RealClock()
        self._faults = Faults()
        self._transcript = Transcript(self._clock)
        self._sessions = itertools.count(1)
        self._listeners: dict[str, Listener] = {}
        self.device = SwitchDevice(
            name,
            Matrix(inputs, outputs, when_occupied),
            plant=plant,
            clock=self._clock,
            switch_time_s=switch_time_s,
            hitless=hitless,
            boot_mode=boot_mode,
            faults=self._faults,
        )
        model = f"I-OST-{inputs}x{outputs}-LU1-DMHNS-801"
        serial = f"SIM{zlib.crc32(name.encode()) % 1_000_000:06d}"
        self._scpi = ScpiFront(
            self.device,
            identity=f"Polatis,{model},{serial},{FIRMWARE}",
            network=self._network,
            separate_lines=separate_lines,
        )
        self._tl1 = Tl1Front(
            self.device, name=name, account=(user, password), model=model, serial=serial, firmware=FIRMWARE
        )
        board = FaultBoard(self._faults, self.device, line=self, sessions=self._tl1)
        self._control = ControlServer(Panel(self, self.device, self._transcript, board).verbs())

    async def serve(self, scpi: socket.socket, tl1: socket.socket, control: socket.socket) -> None:
        """Serve clients on three bound sockets; returns at once, the event loop does the work.

        Bind with `sim.twins.listener.bound_socket` so that the twin can refuse clients for a while.
        """
        self._listeners = {
            "scpi": Listener(scpi, lambda *streams: self._converse_scpi(streams)),
            "tl1": Listener(tl1, lambda *streams: self._converse_tl1(streams)),
        }
        self.accept()
        await self._control.serve(control)

    async def close(self) -> None:
        """Drop all clients and close the three sockets. What is lit stays lit in the plant."""
        for listener in self._listeners.values():
            await listener.close()
        await self._control.close()
        await self.device.stop()

    def accept(self) -> None:
        """Accept clients of the wire languages."""
        for listener in self._listeners.values():
            listener.open()

    async def refuse(self) -> None:
        """Refuse new clients of the wire languages; the control socket goes on."""
        for listener in self._listeners.values():
            await listener.refuse()

    def drop_clients(self) -> int:
        """Break all connections of the wire languages; gives their number."""
        return sum(listener.drop_clients() for listener in self._listeners.values())

    async def power_cycle(self, off_s: float) -> None:
        """Switch off, stay off for `off_s` of the clock, boot with what the boot mode keeps."""
        self.device.power_off()
        await self.refuse()
        self.drop_clients()
        await self._clock.sleep(off_s)
        self._scpi.errors.clear()
        self.device.boot()
        self.accept()

    def _line(self, front: str, streams: Streams) -> Line:
        return Line(
            front,
            next(self._sessions),
            streams,
            faults=self._faults,
            transcript=self._transcript,
            clock=self._clock,
        )

    async def _converse_scpi(self, streams: Streams) -> None:
        limit = self._faults.max_sessions
        if limit is not None and self._listeners["scpi"].clients > limit:
            return
        line, commands = self._line("scpi", streams), LineReader()
        while data := await line.read():
            for text in self._complete_lines(commands, data):
                await line.respond(lambda text=text: self._scpi.execute(text))  # type: ignore[misc]

    def _complete_lines(self, commands: LineReader, data: bytes) -> list[str]:
        try:
            return commands.feed(data)
        except ScpiError as error:
            self._scpi.report(error)
            return []

    async def _converse_tl1(self, streams: Streams) -> None:
        line = self._line("tl1", streams)
        session = self._tl1.session(line.send)
        try:
            while data := await line.read():
                for text in session.commands(data):
                    await line.respond(lambda text=text: session.execute(text))  # type: ignore[misc]
        finally:
            session.end()

    def _network(self) -> str:
        host = self._listeners["scpi"].address.rpartition(":")[0]
        broadcast = ".".join([*host.split(".")[:3], "255"])
        return f'IP="{host}" Gateway="0.0.0.0" Mask="255.255.255.0" Broadcast="{broadcast}"'

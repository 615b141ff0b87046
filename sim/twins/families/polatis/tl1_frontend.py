"""The switch's TL1: logins, sessions, reports, and the table of commands.

Every command but the login needs a login on its connection. Configuration changes by anybody are reported
to every session that is logged in, but to the one that made them only with `own_reports`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sim.twins.families.polatis.attenuators import Attenuators
from sim.twins.families.polatis.tl1_aid import aid_ports
from sim.twins.families.polatis.tl1_ports import PortCommands
from sim.twins.frontends.tl1 import Handler, Lines, Tl1Frontend, Tl1Session, local_time
from sim.twins.frontends.tl1_syntax import Command, Denied
from sim.twins.switch.device import SwitchDevice

DEFAULT_IDLE_TIMEOUT_S = 1800.0


class PolatisTl1(Tl1Frontend):
    """TL1 of one switch, with an idle limit that its users set."""

    not_logged_in = ("PICC", "login needed")

    def __init__(
        self,
        device: SwitchDevice,
        *,
        account: tuple[str, str],
        model: str,
        serial: str,
        firmware: str,
        attenuators: Attenuators,
        page_rows: int = 0,
        own_reports: bool = False,
    ) -> None:
        super().__init__(device, account=account, page_rows=page_rows, own_reports=own_reports)
        self.idle_timeout_s = DEFAULT_IDLE_TIMEOUT_S
        self._label = (model, serial, firmware)
        self._ports = PortCommands(device, attenuators)
        device.listen(lambda change: self.report_changes(change, ("DLT-PATCH", "ENT-PATCH")))

    def table(self, session: Tl1Session) -> dict[str, Handler]:
        """Return the commands of a session that is logged in."""
        commands: dict[str, Handler] = {
            "RTRV-HDR": lambda _: (),
            "RTRV-NETYPE": lambda _: self._network_element_type(),
            "RTRV-INV": lambda _: self._inventory(),
            "RTRV-EQPT": self._equipment,
            "ED-EQPT": self._edit_equipment,
            "ENT-PATCH": self._connect,
            "DLT-PATCH": self._disconnect,
            "RTRV-PATCH": self._connections,
            "INH-MSG": lambda _: session.silence(silenced=True),
            "ALW-MSG": lambda _: session.silence(silenced=False),
        }
        return {**commands, **self._ports.table()}

    def check_target(self, command: Command) -> None:
        """Raise `Denied` for a command that names another device."""
        if command.tid not in {"", self.device.name}:
            raise Denied("IITA", f"this is {self.device.name}")

    def change_row(self, number: int, verb: str, pair: tuple[int, int]) -> str:
        """Return the line that reports one circuit, with its time."""
        now = local_time()
        return f"DATE={now:%y-%m-%d},TIME={now:%H-%M-%S},{super().change_row(number, verb, pair)}"

    # -- inventory

    def _network_element_type(self) -> Lines:
        model, _, firmware = self._label
        return [f"POLATIS,{model},OCS,{firmware}"]

    def _inventory(self) -> Lines:
        model, serial, firmware = self._label
        return [f"OCS:SN={serial},MODEL={model},FW={firmware}"]

    def _equipment(self, command: Command) -> Lines:
        asked = (command.aid.upper(), command.keyword("PARAMETER").upper())
        matrix = self.device.matrix
        if asked == ("SYSTEM", "SIZE"):
            return [f"SYSTEM:SIZE={matrix.inputs}x{matrix.outputs}"]
        if asked == ("PMON", "CONFIG"):
            return [
                f"PMON::PORT={port},MODE={'INPUT' if matrix.is_input(port) else 'OUTPUT'}"
                for port in matrix.ports
            ]
        if asked == ("ATTEN", "CONFIG"):
            outputs = matrix.ports[matrix.inputs :]
            return [f"ATTEN::PORT={port},MODE={self._ports.attenuation(port).mode}" for port in outputs]
        if asked == ("TIMEOUT", "ADMIN"):
            return [f"TIMEOUT:ADMIN={self.idle_timeout_s / 60:g}"]
        raise Denied("IIAC", f"no parameter {asked[1]} of {asked[0]}")

    def _edit_equipment(self, command: Command) -> Lines:
        if command.aid.upper() != "TIMEOUT":
            raise Denied("IIAC", f"{command.aid} cannot be edited")
        text = command.keyword("ADMIN")
        if not text.isdecimal():
            raise Denied("IDNV", "ADMIN is a number of minutes")
        self.idle_timeout_s = 60.0 * int(text)
        return ()

    # -- cross-connects

    async def _connect(self, command: Command) -> Lines:
        inputs, comma, outputs = command.aid.partition(",")
        if not comma:
            raise Denied("IIAC", "an input and an output are needed")
        forced = command.positional[0].lower() == "frcd"
        pairs = aid_ports(inputs), aid_ports(outputs)
        await self._change(lambda: self.device.matrix.added(*pairs, "replace" if forced else None))
        return ()

    async def _disconnect(self, command: Command) -> Lines:
        matrix = self.device.matrix
        if command.aid.upper() == "ALL":
            await self._change(matrix.emptied)
        else:
            ports = aid_ports(command.aid)
            await self._change(lambda: matrix.without_ports(ports))
        return ()

    async def _change(self, after: Callable[[], dict[int, int]]) -> None:
        """Change the configuration, and wait for the light, unless a fault swallows the command."""
        if self.device.faults.take_dropped_command():
            return
        motion = self.device.change(after())
        if motion:
            await asyncio.wait({motion})  # a session that ends meanwhile does not stop the mirrors

    def _connections(self, command: Command) -> Lines:
        connections = self.device.matrix.connections
        if not command.aid or command.aid.upper() == "ALL":
            return [f"{source},{output}" for source, output in connections.items()]
        wanted = set(aid_ports(command.aid))
        for port in wanted:
            self.device.matrix.check_port(port)
        return [f"{source},{output}" for source, output in connections.items() if wanted & {source, output}]

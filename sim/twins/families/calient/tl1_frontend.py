"""TL1 interface of a Calient switch: a raw port for programs, and an interactive port with a prompt.

The answer to a command without ctag has the tag 0 (`M  0`). An answer of more than `page_rows` rows is split into
blocks. Each block ends with `>`, except the last, which ends with `;`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sim.twins.families.calient.circuits import Circuit, CircuitConfiguration
from sim.twins.frontends.tl1 import Command, Denial, Framing, Handler, TextLines, Tl1Frontend, Tl1Session
from sim.twins.switch.device import SwitchDevice
from sim.twins.switch.fault_list import Fault
from sim.twins.switch.matrix import MatrixRefusal

PROMPT = b"agent> "
NOTICE = "   /* NOTICE: this is a simulated switch;\r\n      no light is hurt. */"


class CalientTl1(Tl1Frontend):
    """The TL1 interface of one switch. `change_word` announces a change in its reports."""

    framing = Framing(block_suffix="\r\n", report_suffix="\r\n")
    login_required_denial = ("PLNA", "Login Not Active")
    login_denied_text = "Invalid user or password"
    unknown_command_text = "Invalid command"
    noise_report = ("REPT ALM CRS", "1.1.1>1.1.2:MN,PWRLOW,NSA,,,:threshold; crossed")

    def __init__(
        self,
        device: SwitchDevice,
        configuration: CircuitConfiguration,
        *,
        account: tuple[str, str],
        serial_number: str,
        page_rows: int,
        sends_own_reports: bool,
        change_word: str = "DBCHG",
    ) -> None:
        super().__init__(device, account=account, page_rows=page_rows)
        self.configuration = configuration
        self._names = configuration.names
        self._serial_number = serial_number
        if sends_own_reports:
            device.add_listener(
                lambda change: self.report_changes(change, ("DLT-CRS", "ENT-CRS"), f"REPT {change_word}")
            )

    def make_handlers(self, session: Tl1Session) -> Mapping[str, Handler]:
        """Return the command handlers of a logged-in session, by verb."""
        return {
            "INH-MSG": lambda _: session.set_silenced(is_silenced=True),
            "ALW-MSG": lambda _: session.set_silenced(is_silenced=False),
            "RTRV-HDR": lambda _: (),
            "RTRV-NE": lambda _: [
                (
                    f"{self.device.name}:SERIALNUMBER={self._serial_number},SWPACKAGE=6.0-3,STATUS=OK,CHASSISTYPE=S"
                    f"{self._names.port_count},PLATFORM=VERSION2"
                )
            ],
            "RTRV-CRS": self._list_circuits,
            "RTRV-PORT": lambda command: [self._describe_port(port) for port in self._find_ports(command)],
            "RTRV-PORT-SUM": lambda command: [
                self._summarise_port(port) for port in self._find_ports(command)
            ],
            "ENT-CRS": self._provision_circuit,
            "ACT-CRS": lambda command: self._apply_to_circuit(command, self.configuration.activate),
            "CANC-CRS": lambda command: self._apply_to_circuit(command, self.configuration.deactivate),
            "DLT-CRS": lambda command: self._apply_to_circuit(command, self.configuration.delete),
            "DLT-CRS-ALL": self._delete_all_circuits,
        }

    def find_canonical_verb(self, verb: str) -> str:
        """Return the key of `verb` in `make_handlers`.

        Any `INH-MSG-...` or `ALW-MSG-...` applies to all kinds of messages.
        """
        return verb[: len("INH-MSG")] if verb.startswith(("INH-MSG", "ALW-MSG")) else verb

    def check_account(self, session: Tl1Session, command: Command) -> str:
        """Return the user of a login command. Raise `Denial` for a refused login or a user who is logged in already."""
        if session.user == command.aid:
            raise Denial("SNVS", "Already logged in")
        return super().check_account(session, command)

    def format_welcome(self, session: Tl1Session) -> TextLines:
        """Return the line of the answer to a login."""
        return [f"{session.user}:{session.user},2"]

    def make_answer_comment(self, command: Command) -> str:
        """Return the notice that follows a login, or an empty string for other commands."""
        return NOTICE if command.verb == "ACT-USER" else ""

    def describe_refusal(self, refusal: MatrixRefusal) -> str:
        """Return the device's text for a refusal."""
        return self.configuration.describe_refusal(refusal)

    def format_pair_name(self, pair: tuple[int, int]) -> str:
        """Return the name of a circuit in reports."""
        return (
            f"{self._names.format_name(pair[0])}>{self._names.format_name(pair[1] - self._names.port_count)}"
        )

    def format_answer(self, command: Command, lines: TextLines) -> bytes:
        """Return the frame of a completed command. Count it in `fire_counts` if it is split into pages."""
        if 0 < self.page_rows < len(lines):
            self.device.faults.fire_counts["page_rows"] += 1
        return super().format_answer(command, lines)

    def list_faults(self) -> Mapping[str, Fault]:
        """Return the faults `page_rows` (answers are split into pages) and `report_noise`, by name."""
        default = self.page_rows
        return {
            "page_rows": Fault(
                lambda request: setattr(self, "page_rows", request.get_integer("count")),
                lambda _: setattr(self, "page_rows", default),
            ),
            "report_noise": self.make_noise_fault(),
        }

    # -- reads

    def _list_circuits(self, command: Command) -> TextLines:
        # The name of a circuit stands alone, or after an empty group field.
        name = next(filter(None, command.positional), "")
        circuits = self.configuration.list_circuits()
        if name.upper() not in {"", "ALL"}:
            circuits = [self.configuration.find_circuit_by_name(name)]
        return [self._describe_circuit(circuit) for circuit in circuits]

    def _describe_circuit(self, circuit: Circuit) -> str:
        name = self.configuration.format_name(circuit)
        admin, operational, capability = self.configuration.describe_circuit_states(circuit)
        return (
            f"{name}:SRCPORT={self._names.format_name(circuit.source)},DSTPORT={self._names.format_name(circuit.target)},"
            f"GRPNAME={circuit.group},CONNNAME={name},CONNTYPE={'2WAY' if circuit.is_two_way else '1WAY'},"
            f"AS={admin},OS={operational},OC={capability},PS=UPR,AL=CL"
        )

    def _find_ports(self, command: Command) -> Sequence[int]:
        """Return the ports that a command names: `::0` means all ports, `::1.2` all ports of a fibre.

        Only one known client names a whole fibre.
        """
        aid = command.aid.strip()
        all_ports = range(1, self._names.port_count + 1)
        if aid in {"", "0"}:
            return all_ports
        matching_ports = [
            port for port in all_ports if self._names.format_name(port).rpartition(".")[0] == aid
        ]
        return matching_ports or [self._names.parse_name(name) for name in aid.split("&")]

    def _describe_port(self, port: int) -> str:
        side_states = [
            f"{side}AS={admin},{side}OS={operational},{side}OC={capability},{side}RS=NPR"
            for side, number in (("IN", port), ("OUT", port + self._names.port_count))
            for admin, operational, capability in [self.configuration.describe_fibre_states(number)]
        ]
        owners = ",".join(
            self.configuration.find_owner(number) for number in (port, port + self._names.port_count)
        )
        return f"{self._names.format_name(port)}:WX,{owners}:{','.join(side_states)}"

    def _summarise_port(self, port: int) -> str:
        powers = [self._format_power(number) for number in (port, port + self._names.port_count)]
        circuits = [
            entry
            for entry in self.configuration.list_circuits()
            if any(port in ports for ports in entry.list_directions())
        ][:2]
        connections = [
            (self.configuration.format_name(entry), "ACT" if entry.is_active else "PRO") for entry in circuits
        ]
        connections += [("NONE", "NONE")] * (2 - len(connections))
        connection_fields = ",".join(
            f"CONNNAME{n}={name},CONNSTATE{n}={state}" for n, (name, state) in enumerate(connections, 1)
        )
        alias = self.configuration.get_label(port) or "NONE"
        return f"{self._names.format_name(port)}:ALIAS={alias},INPWR={powers[0]},OUTPWR={powers[1]},{connection_fields}"

    def _format_power(self, matrix_port: int) -> str:
        dbm = self.configuration.read_power_dbm(matrix_port)
        return "NONE" if dbm is None else f"{dbm:.2f}"

    # -- changes

    def _provision_circuit(self, command: Command) -> TextLines:
        names = command.aid.split(",")
        if len(names) != 2:
            raise Denial("IIAC", "Invalid Port: two ports are needed")
        source, target = (self._names.parse_name(name) for name in names)
        *group, direction = [*command.positional, ""][:2] if len(command.positional) > 1 else ["", "1WAY"]
        if direction.upper() not in {"1WAY", "2WAY"}:
            raise Denial("IDNV", "Invalid direction")
        if not self.device.faults.must_drop_command():
            is_two_way = direction.upper() == "2WAY"
            self.configuration.provision(source, target, is_two_way=is_two_way, group="".join(group))
        return ()

    def _apply_to_circuit(self, command: Command, change_circuit: Callable[[Circuit], None]) -> TextLines:
        """Call `change_circuit` with the circuit that the command names. Raise `Denial` unless it names exactly one."""
        names = [text for text in command.positional if ">" in text or "-" in text]
        if len(names) != 1:
            raise Denial("IPMS", "a connection is needed")
        circuit = self.configuration.find_circuit_by_name(names[0])
        if not self.device.faults.must_drop_command():
            change_circuit(circuit)
        return ()

    def _delete_all_circuits(self, command: Command) -> TextLines:
        del command
        if not self.device.faults.must_drop_command():
            for circuit in self.configuration.list_circuits():
                self.configuration.delete(circuit)
        return ()

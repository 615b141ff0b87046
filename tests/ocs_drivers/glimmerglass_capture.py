"""A session with a Glimmerglass of 2016, byte for byte as a public capture has it, and a plain server that replays it.

The capture is in the test file of the repository ericrqs/cloudshell-L1-glimmerglass: a unit of 48 x 48 ports named
BD0472 lists its ports and its circuits, with a few ports that split light beyond the 48. It has two circuits. What it
prints for its size is not captured: `SYSTEM` has the order that the client in that repository parses.
"""

from __future__ import annotations

import re
import socket
import threading

CIRCUITS = {1: 48 + 8, 4: 48 + 5}
"""Circuits of the capture, with outputs counted behind the 48 inputs."""

INPUT_DBM = [
    "-12.05",
    "-12.50",
    "-13.02",
    "-11.93",
    "-50.66",
    "-49.67",
    "-49.54",
    "-49.78",
    "-50.25",
    "-50.98",
    "-50.24",
    "-50.64",
    "-50.78",
    "-50.99",
    "-49.91",
    "-50.39",
    "-49.87",
    "-50.43",
    "-50.39",
    "-50.64",
    "-50.18",
    "-50.01",
    "-50.11",
    "-49.75",
    "-13.04",
    "-12.92",
    "-50.65",
    "-50.44",
    "-48.11",
    "-49.91",
    "-49.86",
    "-50.91",
    "-50.65",
    "-50.08",
    "-50.42",
    "-50.38",
    "-10.25",
    "-12.19",
    "-51.07",
    "-50.91",
    "-50.38",
    "-50.18",
    "-50.98",
    "-50.54",
    "-50.24",
    "-50.24",
    "-51.12",
    "-50.61",
    "-49.14",
    "-49.12",
    "-51.20",
    "-50.83",
    "-50.48",
    "-50.67",
]
OUTPUT_DBM = [
    "-51.85",
    "-51.09",
    "-51.28",
    "-51.14",
    "-13.51",
    "-50.45",
    "-51.46",
    "-13.63",
    "-51.25",
    "-51.67",
    "-51.56",
    "-52.36",
    "-51.69",
    "-50.77",
    "-49.08",
    "-50.29",
    "-49.93",
    "-51.93",
    "-52.77",
    "-51.77",
    "-50.55",
    "-51.51",
    "-51.21",
    "-51.50",
    "-51.55",
    "-51.35",
    "-51.70",
    "-51.35",
    "-50.73",
    "-51.84",
    "-49.83",
    "-49.57",
    "-50.56",
    "-52.66",
    "-51.67",
    "-52.11",
    "-49.84",
    "-50.73",
    "-51.31",
    "-49.71",
    "-50.56",
    "-51.80",
    "-51.56",
    "-51.60",
    "-50.77",
    "-50.37",
    "-51.43",
    "-51.10",
    "-50.66",
    "-49.72",
]
SPLITTER_INPUTS = ("MC-1-1", "MC-1-2", "MC-1-3", "MC-1-4", "MC-2-1", "MC-2-2")
LOSSES = {1: "1.57", 4: "1.58"}

SYSTEM = (
    "GGN:SerialNumber=GG0472",
    "GGN:SystemType=System100",
    "GGN:ChassisType=GG100",
    "GGN:SoftwareActiveVersion=4.2.1",
    "GGN:LicensedPortMatrix=48x48",
)


def _input(number: int) -> str:
    name = f"IN{number}" if number <= 48 else SPLITTER_INPUTS[number - 49]
    dbm = INPUT_DBM[number - 1]
    return (
        f"IPORTID={10_000 + number},IPORTGROUP=OpenGroup,IPORTNAME={name},IPORTCOMMENT=,INPWR={dbm}"
        if number
        else "IPORTID=0,IPORTGROUP=,IPORTNAME=,IPORTCOMMENT=,INPWR=NA"
    )


def _output(number: int) -> str:
    name = f"OUT{number}" if number <= 48 else f"MC-{number - 48}"
    dbm = OUTPUT_DBM[number - 1]
    return (
        f"OPORTID={20_000 + number},OPORTGROUP=OpenGroup,OPORTNAME={name},OPORTCOMMENT=,OUTPWR={dbm}"
        if number
        else "OPORTID=0,OPORTGROUP=,OPORTNAME=,OPORTCOMMENT=,OUTPWR=NA"
    )


def _circuit(source: int, output: int) -> str:
    made = bool(source and output)
    return (
        f"GGN:{_input(source)},{_output(output)},SIGBAND=1550,PWRLOSS={LOSSES[source] if made else 'NA'},CONNID=0,"
        f"CONNNAME={f'IN{source}' if made else ''},CONNSTATE={'steady' if made else 'single'},CONNCAUSE=none,"
        f"CONNLOCK=0,CONNLOCKUSER={'admin' if made else ''}"
    )


def circuit_rows() -> list[str]:
    """Return the 104 rows of `rtrv-crs-fiber::all`: 54 inputs, then 50 outputs."""
    made = {source: output - 48 for source, output in CIRCUITS.items()}
    sources = {output: source for source, output in made.items()}
    return [_circuit(source, made.get(source, 0)) for source in range(1, 55)] + [
        _circuit(sources.get(output, 0), output) for output in range(1, 51)
    ]


def port_rows() -> list[str]:
    """Return the 96 rows of `RTRV-CFG-FIBER::10001&&10048&20001&&20048`."""
    return [
        f"GGN:PORTID={base + number},PORTGROUP=OpenGroup,PORTNAME={side}{number},SIGBAND=1550,SIGTHRESH=1550,"
        f"PORTHEALTH=good,PORTCAT=nor,PORTCOMMENT=,STMINSEV=DI,STMAXSEV=DI{',CSFLTSEV=CR' if side == 'OUT' else ''}"
        for base, side in ((10_000, "IN"), (20_000, "OUT"))
        for number in range(1, 49)
    ]


PORT_PAGES = (26, 26, 24, 20)
CIRCUIT_PAGES = (16, 16, 16, 15, 16, 16, 9)
"""Rows of each page."""


def answer(rows: list[str], pages: tuple[int, ...], moment: str, tag: str = "1") -> bytes:
    """Return an answer in pages: each ends with `>` and the prompt, the last with `;` and the prompt."""
    head = f"\r\n   BD0472 {moment}\r\nM  {tag} COMPLD\r\n"
    blocks, first = [], 0
    for size in pages:
        blocks.append(head + "".join(f'   "{row}"\r\n' for row in rows[first : first + size]))
        first += size
    assert first == len(rows)
    return (">\r\n<\r\n".join(blocks) + ";\r\n<").encode()


class PlainServer:
    """A server of the capture on a real socket: it repeats each command, then answers from the capture."""

    def __init__(self) -> None:
        self.commands: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop when the client has left."""
        self._listener.close()
        self._thread.join(10)

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        with client, client.makefile("rwb") as stream:
            client.sendall(b"\r\n<")
            while line := stream.readline():
                command = line.decode().strip()
                self.commands.append(command)
                client.sendall(f"{command}\r\n".encode() + self._answer(command))

    @staticmethod
    def _answer(command: str) -> bytes:
        verb, tag = command.split(":", maxsplit=1)[0].upper(), re.split("[:;]", command)[3]
        if verb == "RTRV-CFG-FIBER":
            return answer(port_rows(), PORT_PAGES, "16-06-09 17:12:52", tag)
        if verb == "RTRV-CRS-FIBER":
            return answer(circuit_rows(), CIRCUIT_PAGES, "16-06-09 17:13:36", tag)
        rows = list(SYSTEM) if verb == "RTRV-SYSTEM-INFO" else []
        return answer(rows, (len(rows),), "16-06-09 17:12:50", tag)

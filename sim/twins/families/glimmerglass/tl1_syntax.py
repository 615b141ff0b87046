"""TL1 as a Glimmerglass prints it: the numbers of its ports, and its rows of circuits and ports.

Sans I/O. The rows are those of public captures of two releases of the software: one of 2016, and one of 2005.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from sim.twins.frontends.tl1_syntax import Denied

PROMPT = "\r\n<"
INPUT_BASE, OUTPUT_BASE = 10_000, 20_000
PAGE_BYTES = 3960
"""Size of the data lines of a page: the pages of the capture of 2016 end where one more line would pass it."""

Release = Literal["2016", "2005"]

_RANGE = r"\d{5}(?:&&\d{5})?"
_LIST = re.compile(rf"{_RANGE}(?:&{_RANGE})*")
_MAX_LIST = 4096


@dataclass(frozen=True, slots=True)
class Numbering:
    """The device's port numbers against those of the matrix: 10001.. for inputs, 20001.. for outputs."""

    inputs: int
    outputs: int

    def number(self, port: int) -> int:
        """Return the device's number of a port of the matrix.

        >>> Numbering(8, 8).number(1), Numbering(8, 8).number(9)
        (10001, 20001)
        """
        return INPUT_BASE + port if port <= self.inputs else OUTPUT_BASE + port - self.inputs

    def port(self, number: int) -> int:
        """Return the port of the matrix. Raises `Denied` (IIAC)."""
        if INPUT_BASE < number <= INPUT_BASE + self.inputs:
            return number - INPUT_BASE
        if OUTPUT_BASE < number <= OUTPUT_BASE + self.outputs:
            return number - OUTPUT_BASE + self.inputs
        raise Denied("IIAC", f"there is no port {number}")

    def ports(self, text: str) -> list[int]:
        """Return ports of a list of numbers and ranges. Raises `Denied` (IIAC).

        >>> Numbering(8, 8).ports("10001&10003&20001&&20003")
        [1, 3, 9, 10, 11]
        """
        if not _LIST.fullmatch(text):
            raise Denied("IIAC", f"{text[:40]!r} is not a list of ports")
        ports: list[int] = []
        for part in re.split(r"(?<!&)&(?!&)", text)[:_MAX_LIST]:
            first, _, last = part.partition("&&")
            ports += [self.port(number) for number in range(int(first), int(last or first) + 1)]
        return ports


@dataclass(frozen=True, slots=True)
class End:
    """One end of a row of circuits: a port with its name and its reading, or none (the default)."""

    number: int = 0
    name: str = ""
    dbm: float | None = None


@dataclass(frozen=True, slots=True)
class State:
    """State of a circuit, why it is so, and who made it."""

    word: str = "single"
    cause: str = "none"
    user: str = ""


def circuit_row(release: Release, source: End, output: End, state: State) -> str:
    """Return a row of `rtrv-crs-fiber`: a circuit, or a port that has none.

    >>> circuit_row("2005", End(10001, "", -49.162), End(), State()).partition(",CONNID=")[2]
    '0,CONNSTATE=single,CONNCAUSE=none,INPWR=-49.162,OUTPWR=0.000,PWRLOSS=0.000,CONNLOCK=0,CONNLOCKUSER='
    """
    loss_db = None if source.dbm is None or output.dbm is None else source.dbm - output.dbm
    lit = (power_text(release, source.dbm), power_text(release, output.dbm), power_text(release, loss_db))
    if release == "2005":
        return (
            f"GGN:IPORTID={source.number},IPORTNAME={source.name},OPORTID={output.number},OPORTNAME={output.name},"
            f"CONNID=0,CONNSTATE={state.word},CONNCAUSE={state.cause},INPWR={lit[0]},OUTPWR={lit[1]},"
            f"PWRLOSS={lit[2]},CONNLOCK=0,CONNLOCKUSER={state.user}"
        )
    name = source.name if source.number and output.number else ""
    return (
        f"GGN:{_end('I', source, lit[0])},{_end('O', output, lit[1])},SIGBAND=1550,PWRLOSS={lit[2]},"
        f"CONNID=0,CONNNAME={name},CONNSTATE={state.word},CONNCAUSE={state.cause},"
        f"CONNLOCK=0,CONNLOCKUSER={state.user}"
    )


def _end(side: str, end: End, power: str) -> str:
    group = "OpenGroup" if end.number else ""
    return (
        f"{side}PORTID={end.number},{side}PORTGROUP={group},{side}PORTNAME={end.name},{side}PORTCOMMENT=,"
        f"{'IN' if side == 'I' else 'OUT'}PWR={power}"
    )


def power_text(release: Release, dbm: float | None) -> str:
    """Return a reading in dBm, or what stands where there is no port.

    >>> power_text("2016", -12.05), power_text("2016", None), power_text("2005", None)
    ('-12.05', 'NA', '0.000')
    """
    if release == "2005":
        return f"{dbm or 0:.3f}"
    return "NA" if dbm is None else f"{dbm:.2f}"


def port_row(release: Release, number: int, name: str, health: str) -> str:
    """Return a row of `RTRV-CFG-FIBER`.

    >>> port_row("2005", 10064, "from stack #4", "good")
    'GGN:PORTID=10064,PORTNAME=from stack #4,PORTDIR=input,PORTHEALTH=good,PORTCAT=nor,PORTPRIV=0x1'
    """
    is_input = number < OUTPUT_BASE
    if release == "2005":
        side = "input" if is_input else "output"
        return (
            f"GGN:PORTID={number},PORTNAME={name},PORTDIR={side},PORTHEALTH={health},PORTCAT=nor,PORTPRIV=0x1"
        )
    return (
        f"GGN:PORTID={number},PORTGROUP=OpenGroup,PORTNAME={name},SIGBAND=1550,SIGTHRESH=1550,"
        f"PORTHEALTH={health},PORTCAT=nor,PORTCOMMENT=,STMINSEV=DI,STMAXSEV=DI{'' if is_input else ',CSFLTSEV=CR'}"
    )


def noise_dbm(number: int) -> float:
    """Return the reading of a port without light: -49.0 to -52.9, another one at each port, as in the captures."""
    return -49.0 - number * 7 % 40 / 10

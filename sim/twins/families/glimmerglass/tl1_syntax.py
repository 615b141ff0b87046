"""TL1 as a Glimmerglass prints it: frames behind a `<` prompt, and rows of circuits and ports.

Sans I/O. An answer begins on the line of the prompt and ends with the next one:

    < ocs1 26-01-31 12:00:00
    M  4 COMPLD
       "GGN:IPORTID=10046,IPORTNAME=,OPORTID=20047,OPORTNAME=,CONNID=0,CONNSTATE=steady,..."
    ;
    <
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sim.twins.frontends.tl1_syntax import Denied

PROMPT = "\r\n<"
INPUT_BASE, OUTPUT_BASE = 10_000, 20_000

_LIST = re.compile(r"\d{5}(?:&\d{5})*")
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
        """Return ports of a `&` list. Raises `Denied` (IIAC)."""
        if not _LIST.fullmatch(text):
            raise Denied("IIAC", f"{text[:40]!r} is not a list of ports")
        return [self.port(int(number)) for number in text.split("&")[:_MAX_LIST]]


def power_text(dbm: float | None) -> str:
    """Return a power in dBm; NONE is darkness.

    >>> power_text(-5.873), power_text(None)
    ('-5.873', 'NONE')
    """
    return "NONE" if dbm is None else f"{dbm:.3f}"


def circuit_row(
    number: int,
    output: int,
    labels: tuple[str, str],
    state: tuple[str, str],
    powers: tuple[float | None, ...],
) -> str:
    """Return a row of `rtrv-crs-fiber`: the device's two numbers, their names, state and cause, power in and out.

    >>> circuit_row(10046, 20047, ("", ""), ("steady", "none"), (-5.873, -6.762)).partition(",INPWR=")[2]
    '-5.873,OUTPWR=-6.762,PWRLOSS=0.889'
    """
    power_in, power_out = powers
    loss_db = None if power_in is None or power_out is None else power_in - power_out
    return (
        f"GGN:IPORTID={number},IPORTNAME={labels[0]},OPORTID={output},OPORTNAME={labels[1]},CONNID=0,"
        f"CONNSTATE={state[0]},CONNCAUSE={state[1]},"
        f"INPWR={power_text(power_in)},OUTPWR={power_text(power_out)},PWRLOSS={power_text(loss_db)}"
    )

"""The driver of docs/how-to/add-a-switch.md, as it stands there, keeps the contract on a device made up for it."""

from __future__ import annotations

import re
import socket
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest
from needs import needs

from ocs_drivers import families, known_schemes, open_switch
from ocs_drivers.errors import DeviceError
from ocs_drivers.testing import SwitchContract

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-switch.md"
MAX_LINES = 150


MAX_LINES_OF_TL1, MAX_FILES = 130, 4
ROWS = 1
"""A row in the table of families."""
TL1_FILES = ("codec", "driver", "")


def blocks(language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )


class PrismaDevice:
    """The device of the page's table, on a socket."""

    def __init__(self) -> None:
        self.outputs: dict[int, int] = {}
        self.refuses = ""

    def serve(self, connection: socket.socket) -> None:
        with connection.makefile("rwb") as lines:
            for line in lines:
                lines.write(self.answer(line.decode().split()).encode() + b"\r\n")
                lines.flush()

    def answer(self, parts: list[str]) -> str:
        if parts == ["WHO"]:
            return "PRISMA 8 SN 0042 FW 1.3"
        if parts == ["MAP"]:
            return " ".join(f"{n}>{self.outputs.get(n, '-')}" for n in range(1, 9))
        if self.refuses:
            return f"NO {self.refuses}"
        if parts[0] == "SET":
            source, output = map(int, parts[1:])
            if source in self.outputs or output in self.outputs.values():
                return "NO in use"
            self.outputs[source] = output
        else:
            self.outputs.pop(int(parts[1]), None)
        return "OK"


@pytest.fixture
@needs("socket")
def prisma(peer, monkeypatch):
    """Install the driver of the page as its entry point says, and make its device."""
    source, *_ = blocks("python")
    module = ModuleType("prisma.driver")
    exec(compile(source, str(PAGE), "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "prisma", ModuleType("prisma"))
    monkeypatch.setitem(sys.modules, "prisma.driver", module)
    (name, value) = re.search(r'^(\w+) = "(.*)"$', blocks("toml")[0], re.MULTILINE).groups()
    installed = EntryPoint(name=name, value=value, group="ocs_drivers.drivers")
    found = families.entry_points

    class Found(list):
        names = {*found(group="ocs_drivers.drivers").names, name}

    def entry_points(*, group, name=None):
        return (
            [installed]
            if name == installed.name
            else Found()
            if name is None
            else found(group=group, name=name)
        )

    monkeypatch.setattr(families, "entry_points", entry_points)
    device = PrismaDevice()
    return device, f"prisma://127.0.0.1:{peer(device.serve).port}"


class TestPrisma(SwitchContract):
    @pytest.fixture
    @needs("socket")
    def switch(self, prisma):
        _, url = prisma
        with open_switch(url) as switch:
            yield switch


def test_the_page_stays_under_its_length():
    source, *tl1 = blocks("python")
    assert len(source.splitlines()) < MAX_LINES
    assert sum(len(block.splitlines()) for block in tl1) + ROWS <= MAX_LINES_OF_TL1
    assert len(tl1) + ROWS <= MAX_FILES


def test_the_scheme_is_known(prisma):
    assert "prisma" in known_schemes()


def test_a_refusal_is_an_error_with_the_devices_text(prisma):
    device, url = prisma
    device.refuses = "not today"
    with open_switch(url) as switch, pytest.raises(DeviceError, match="not today") as caught:
        switch.connect({1: 9})
    assert caught.value.ports == (1, 9)


class LumenDevice:
    """The device of the section on TL1, on a socket; it knows one account."""

    def __init__(self) -> None:
        self.outputs: dict[int, int] = {}
        self.reports = 0

    def serve(self, connection: socket.socket) -> None:
        with connection.makefile("rwb") as lines:
            for line in lines:
                verb, _, aid, tag, *rest = line.decode().strip().rstrip(";").split(":")
                completion, text = self.answer(verb, aid, rest)
                report = self.report() if verb in {"ENT-CRS", "DLT-CRS"} and completion == "COMPLD" else ""
                body = "".join(f'   "{line}"\r\n' for line in text)
                reply = f"\r\n   LUMEN 26-01-31 12:00:00\r\nM  {tag} {completion}\r\n{body};"
                lines.write((report + reply).encode())
                lines.flush()

    def report(self) -> str:
        self.reports += 1
        return f"\r\n   LUMEN 26-01-31 12:00:00\r\nA  {self.reports} REPT DBCHG\r\n;"

    def answer(self, verb: str, aid: str, rest: list[str]) -> tuple[str, list[str]]:
        if verb == "ACT-USER":
            return ("COMPLD", []) if (aid, rest[-1]) == ("admin", "admin") else ("DENY", ["PIUI"])
        if verb == "CANC-USER":
            return "COMPLD", []
        if verb == "RTRV-NE":
            return "COMPLD", ["LUMEN,16,0042,2.0"]
        if verb == "RTRV-CRS":
            return "COMPLD", [f"{source},{output}" for source, output in self.outputs.items()]
        inputs, *outputs = [[int(number) for number in ports.split("&")] for ports in aid.split(",")]
        if verb == "DLT-CRS":
            for source in inputs:
                self.outputs.pop(source, None)
            return "COMPLD", []
        if set(inputs) & set(self.outputs) or set(outputs[0]) & set(self.outputs.values()):
            return "DENY", ["SRCN", "in use"]
        self.outputs.update(zip(inputs, outputs[0], strict=True))
        return "COMPLD", []


@pytest.fixture
@needs("socket")
def lumen(peer, monkeypatch):
    """Return the address of a Lumen, whose folder is made of the page."""
    _, *sources = blocks("python")
    package = ModuleType("ocs_drivers.vendors.lumen")
    package.__path__ = []
    monkeypatch.setitem(sys.modules, package.__name__, package)
    for name, source in zip(TL1_FILES, sources, strict=True):
        module = ModuleType(f"{package.__name__}.{name}") if name else package
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(source, str(PAGE), "exec"), module.__dict__)
        setattr(package, name or "__doc__", module if name else package.__doc__)
    row = {"lumen+tl1": families.Family("ocs_drivers.vendors.lumen:tl1_switch", is_in_labs=True)}
    monkeypatch.setattr(families, "FAMILIES", {**families.FAMILIES, **row})
    return f"lumen+tl1://127.0.0.1:{peer(LumenDevice().serve).port}"


class TestLumen(SwitchContract):
    @pytest.fixture
    @needs("socket")
    def switch(self, lumen):
        with open_switch(lumen) as switch:
            yield switch

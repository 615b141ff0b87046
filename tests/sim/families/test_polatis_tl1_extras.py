"""TL1 beyond the daily commands: link flap tests, reports on and off, replies in pages. By raw bytes."""

from __future__ import annotations

from typing import Any

import pytest


class Raw:
    """A TL1 client that knows nothing but bytes, logged in."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self.client = world.attach("tl1")
        assert "COMPLD" in self.ask("ACT-USER::admin:1::root;")

    def ask(self, command: str) -> str:
        self.client.send(command.encode())
        self._world.settle()
        return self.client.receive().decode()


@pytest.fixture
def switch(world):
    return world("polatis", size=(8, 8), settings={"switch_time_s": 0.0})


@pytest.fixture
def tl1(switch) -> Raw:
    return Raw(switch)


def test_a_flap_takes_light_away_and_gives_it_back_as_often_as_asked(switch, tl1):
    switch.do("operator", connect=[[2, 10]])
    assert "COMPLD" in tl1.ask("ENT-PORT-FLAP::10:1::1000,500,2;")
    assert "COMPLD" in tl1.ask("OPR-PORT-FLAP::10:2;")
    lit = []
    for _ in range(8):
        switch.advance(0.25)
        lit.append(switch.do("truth")["lit"] == [[2, 10]])
        switch.advance(0.25)
    assert lit == [False, False, True, False, False, True, True, True]


def test_a_flap_of_several_ports_at_once(switch, tl1):
    tl1.ask("ENT-PORT-FLAP::9&10:1::100,100,1;")
    tl1.ask("OPR-PORT-FLAP::9&10:2;")
    switch.settle()
    states = switch.do("truth")["ports"]
    assert (states["9"], states["10"], states["11"]) == ("D", "D", "E")
    switch.advance(1.0)
    assert switch.do("truth")["ports"]["9"] == "E"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("OPR-PORT-FLAP::10:1;", "SNVS"),
        ("ENT-PORT-FLAP::10:1::1000,500;", "IDNV"),
        ("ENT-PORT-FLAP::10:1::a,b,c;", "IDNV"),
        ("ENT-PORT-FLAP::10:1::0,500,1;", "IDRG"),
        ("ENT-PORT-FLAP::10:1::1,1,5000;", "IDRG"),
        ("ENT-PORT-FLAP::99:1::1,1,1;", "IIAC"),
    ],
)
def test_a_flap_that_makes_no_sense_is_denied(tl1, command, code):
    said = tl1.ask(command)
    assert "DENY" in said
    assert f"   {code}\r\n" in said


def test_a_session_may_keep_reports_away_and_others_still_get_them(switch, tl1):
    other = Raw(switch)
    assert "COMPLD" in tl1.ask("INH-MSG:::2:;")
    switch.do("operator", connect=[[1, 9]])
    assert tl1.ask("") == ""
    assert "REPT DBCHG" in other.ask("")
    assert "COMPLD" in tl1.ask("ALW-MSG:::3:;")
    switch.do("operator", disconnect=[1])
    assert "REPT DBCHG" in tl1.ask("")


def test_a_long_reply_comes_in_pages(world):
    switch = world("polatis", size=(8, 8), page_rows="3")
    switch.do("operator", connect=[[i, 8 + i] for i in range(1, 9)])
    said = Raw(switch).ask("RTRV-PATCH:::7:;")
    ends = [line for line in said.split("\r\n") if line in {">", ";"}]
    assert ends == [">", ">", ";"]
    assert said.count("M  7 COMPLD") == 3
    assert [line.strip() for line in said.split("\r\n") if '"' in line] == [
        f'"{i},{8 + i}"' for i in range(1, 9)
    ]


def test_a_short_reply_and_an_empty_one_are_one_page(world):
    switch = world("polatis", size=(8, 8), page_rows="3")
    tl1 = Raw(switch)
    assert tl1.ask("RTRV-PATCH:::7:;").count("COMPLD") == 1
    switch.do("operator", connect=[[i, 8 + i] for i in range(1, 4)])
    tl1.ask("")
    said = tl1.ask("RTRV-PATCH:::8:;")
    assert said.count("COMPLD") == 1
    assert said.endswith("\r\n;")

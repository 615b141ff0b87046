"""The Polatis TL1 driver: logins, denials, reports, and dialogues with a scripted peer."""

from __future__ import annotations

import contextlib
import socket
from unittest import mock

import pytest
from needs import needs

from ocs_drivers import Attenuation, CrossConnects, Status, open_switch
from ocs_drivers.errors import (
    ConnectError,
    ConnectionLost,
    DeviceError,
    LoginFailed,
    PartialApply,
    PortDisabled,
    ProtocolDesync,
    SessionExpired,
    Timeout,
    Unsupported,
    VerifyMismatch,
)
from ocs_drivers.model import Identity, PortState, Step

pytestmark = pytest.mark.socket


@pytest.fixture
@needs("socket")
def switch(twin):
    with open_switch(twin.tl1) as switch:
        yield switch


def commands_of(twin, verb: str | tuple[str, ...]) -> list[str]:
    entries = twin.do("transcript")["entries"]
    text = "".join(e["data"] for e in entries if e["direction"] == "in" and e["front"] == "tl1")
    return [line for line in text.split() if line.startswith(verb)]


# -- logins


@pytest.mark.parametrize(
    "credentials", [("admin", "wrong"), ("nobody", "root"), ("admin", "a,b"), ("a;b", "c")]
)
def test_a_wrong_login_fails_and_shows_no_password(twin, credentials):
    with pytest.raises(LoginFailed) as caught:
        open_switch(twin.tl1, credentials=credentials)
    assert credentials[1] not in str(caught.value).replace("password", "").split()
    assert caught.value.who == "user"


def test_credentials_in_the_address_log_in(twin):
    host = twin.tl1.removeprefix("polatis+tl1://")
    with open_switch(f"polatis+tl1://admin:root@{host}") as switch:
        assert switch.address == twin.tl1
    with pytest.raises(LoginFailed):
        open_switch(f"polatis+tl1://admin:wrong@{host}")


def test_no_session_left_is_the_devices_own_error(twin, switch):
    twin.do("set_fault", fault="max_sessions", count=1)
    with pytest.raises(DeviceError, match="maximum number of sessions") as caught:
        open_switch(twin.tl1)
    assert caught.value.device_code == "SROF"


def test_closing_logs_out_so_that_the_session_is_free(twin):
    twin.do("set_fault", fault="max_sessions", count=1)
    for _ in range(3):
        with open_switch(twin.tl1) as switch:
            switch.read()


def test_an_expired_login_is_renewed_once_for_reads_and_writes(twin, switch):
    twin.do("set_fault", fault="expire_session")
    assert switch.read().connections == CrossConnects()
    guarded = []

    def guard() -> None:
        guarded.append(1)
        if len(guarded) == 1:
            twin.do("set_fault", fault="expire_session")

    assert switch.apply(CrossConnects({1: 9}), guard=guard).complete
    assert len(guarded) == 2  # the refused write, and the one that was made
    assert twin.truth() == {1: 9}


def test_a_login_that_cannot_be_renewed_is_expired(twin, switch):
    twin.do("set_fault", fault="expire_session")
    switch._session._credentials = type(switch._session._credentials)("admin", "changed")
    with pytest.raises(SessionExpired) as caught:
        switch.read()
    assert isinstance(caught.value.__cause__, LoginFailed)


# -- writes


def test_a_change_is_one_removal_and_one_addition(twin, switch):
    switch.apply(CrossConnects({1: 9, 2: 10}))
    twin.do("transcript", clear=True)
    switch.apply(CrossConnects({1: 10, 2: 9}))
    assert [line.split(":")[2] for line in commands_of(twin, "DLT-PATCH")] == ["1&2"]
    assert [line.split(":")[2] for line in commands_of(twin, "ENT-PATCH")] == ["1&2,10&9"]


def test_a_denial_names_the_port_that_is_unfit(twin, switch):
    with pytest.raises(PortDisabled, match="port 9 is disabled") as caught:  # closed after the plan was made
        switch.apply(
            CrossConnects({1: 9}),
            guard=lambda: twin.do("set_fault", fault="disable_port", port=9) and None,
        )
    assert "SNVS" in caught.value.received
    assert caught.value.ports == (9,)
    assert "ENT-PATCH" in caught.value.sent


def test_a_closed_port_is_refused_in_the_plan(twin, switch):
    twin.do("set_fault", fault="disable_port", port=9)
    twin.do("transcript", clear=True)
    assert switch.read().unfit == {9: PortState.DISABLED}
    with pytest.raises(PortDisabled) as caught:
        switch.connect({1: 9})
    assert caught.value.ports == (9,)
    assert commands_of(twin, "ENT-PATCH") == []


def test_a_failed_port_is_reported_by_the_refusal(twin, switch):
    twin.do("set_fault", fault="fail_port", port=9)
    with pytest.raises(DeviceError, match="SROF"):
        switch.connect({1: 9})


def test_the_proof_of_a_step_does_not_ask_for_shutters_again(twin, switch):
    twin.do("transcript", clear=True)
    switch.connect({1: 9})
    verbs = [line.split(":")[0] for line in commands_of(twin, ("RTRV-P", "ENT-P"))]
    assert verbs == ["RTRV-PATCH", "RTRV-PORT-SHUTTER", "ENT-PATCH", "RTRV-PATCH"]


def test_a_dropped_command_is_a_mismatch(twin, switch):
    twin.do("set_fault", fault="drop_command")
    with pytest.raises(VerifyMismatch) as caught:
        switch.connect({1: 9})
    assert caught.value.missing == {1: 9}


@pytest.mark.long
@pytest.mark.parametrize("executed", [True, False])
def test_a_line_lost_in_a_write_is_judged_by_reading_and_never_sent_again(twin, switch, executed):
    twin.do("transcript", clear=True)

    def cut() -> None:
        twin.do("set_fault", fault="close_connection", after_commands=1, executed=executed)

    if executed:
        assert switch.apply(CrossConnects({1: 9}), guard=cut).complete
    else:
        with pytest.raises(PartialApply) as caught:
            switch.apply(CrossConnects({1: 9}), guard=cut)
        assert isinstance(caught.value.__cause__, ConnectionLost)
    assert len(commands_of(twin, "ENT-PATCH")) == 1
    assert twin.truth() == ({1: 9} if executed else {})


def test_a_whole_switch_step_is_beyond_tl1(switch):
    step = Step("replace", CrossConnects({1: 9}), CrossConnects(), CrossConnects({1: 9}))
    outcome = switch.execute(step)
    assert outcome.status is Status.FAILED
    assert isinstance(outcome.error, Unsupported)


def test_an_attenuator_takes_light(twin, switch):
    switch.connect({1: 9})
    before = switch.power([9])[9].dbm
    switch.set_attenuation(9, Attenuation("relative", -5.0))
    assert switch.attenuation(9) == Attenuation("relative", -5.0)
    assert switch.power([9])[9].dbm == pytest.approx(before - 5.0, abs=0.02)
    switch.set_attenuation(9, Attenuation("none"))


# -- reports


def test_another_operators_changes_are_events(twin, switch):
    last = max((event.number for event in switch.events()), default=0)
    twin.do("operator", connect=[[1, 9]])
    switch.read()
    (event,) = switch.events(since=last)
    assert (event.number, event.kind) == (last + 1, "REPT DBCHG")
    assert "1,9" in event.lines[0]
    assert switch.events(since=event.number) == ()


# -- a scripted peer

HEADER = "\r\n   NAME 26-01-31 12:00:00\r\n"
REPLIES = {
    "ACT-USER": "M  {tag} COMPLD\r\n;",
    "CANC-USER": "M  {tag} COMPLD\r\n;",
    "RTRV-NETYPE": 'M  {tag} COMPLD\r\n   "Polatis,OSM-24x24,OCS,6.5.2.18"\r\n;',
    "RTRV-INV": 'M  {tag} COMPLD\r\n   "SN=002414"\r\n;',
    "RTRV-EQPT": 'M  {tag} COMPLD\r\n   "SYSTEM:SIZE=24x24"\r\n;',
    "RTRV-EQPT::PMON": "M  {tag} DENY\r\n   IICM\r\n;",
    "RTRV-EQPT::ATTEN": "M  {tag} DENY\r\n   IICM\r\n;",
    "RTRV-PORT-LABEL": "M  {tag} DENY\r\n   IICM\r\n;",
    "RTRV-PORT-SHUTTER": "M  {tag} DENY\r\n   IICM\r\n;",
}


@pytest.fixture
def scripted(peer):
    """Open a driver on a peer that answers by verb; `{tag}` becomes the command's tag."""
    opened = []

    def start(replies=(), *, timeout_s=5.0, opening=True):
        known = {**REPLIES, **dict(replies)}

        def serve(connection: socket.socket) -> None:
            with connection.makefile("r", newline="") as commands:
                for line in commands:
                    fields = line.strip().split(":")
                    verb, tag = fields[0], fields[3].rstrip(";")
                    reply = known.get(f"{verb}::{fields[2]}") or known[verb]
                    if callable(reply):
                        reply = reply(connection)
                    text = reply if reply.startswith("raw:") else HEADER + reply
                    connection.sendall(text.removeprefix("raw:").format(tag=tag).encode())

        served = peer(serve)
        switch = open_switch(f"polatis+tl1://127.0.0.1:{served.port}", timeout_s=timeout_s)
        opened.append(switch)
        return switch, served

    yield start
    for switch in opened:
        switch.close()


def test_golden_dialogue(scripted):
    switch, _ = scripted({"RTRV-PATCH": 'M  {tag} COMPLD\r\n   "1,25"\r\n   "2,26"\r\n;'})
    assert switch.identity() == Identity("Polatis", "OSM-24x24", "002414", "6.5.2.18")
    assert (switch.capabilities.inputs, switch.capabilities.power_monitor) == (24, False)
    assert switch.capabilities.attenuator is False
    assert switch.read().connections == CrossConnects({1: 25, 2: 26})
    assert switch.power([1]) == {1: None}
    with pytest.raises(Unsupported):
        switch.attenuation(25)


def test_reports_acknowledgements_and_prompts_in_between_are_no_answer(scripted):
    report = 'A  7 REPT DBCHG\r\n   "M  3 COMPLD; really"\r\n;'
    reply = (
        f"raw:IP {{tag}}\r\n<{HEADER}{report}{HEADER}M  {{tag}} COMPLD\r\n"
        f'   "1,25"\r\n;\r\n< {HEADER}{report}'
    )
    switch, _ = scripted({"RTRV-PATCH": reply})
    for _ in range(3):
        assert switch.read().connections == CrossConnects({1: 25})
    assert [event.number for event in switch.events()] == [1, 2, 3, 4, 5, 6]
    assert switch.events()[0].lines == ("M  3 COMPLD; really",)


def test_pages_are_joined(scripted):
    pages = HEADER.join(["raw:", 'M  {tag} COMPLD\r\n   "1,25"\r\n>', 'M  {tag} COMPLD\r\n   "2,26"\r\n;'])
    switch, _ = scripted({"RTRV-PATCH": pages})
    assert switch.read().connections == CrossConnects({1: 25, 2: 26})


@pytest.mark.parametrize(
    "reply",
    [
        "M  99 COMPLD\r\n;",
        "raw:#%~^\r\n",
        'M  {tag} COMPLD\r\n   "1-25"\r\n;',
        'M  {tag} COMPLD\r\n   "1,25"\r\n   "2,25"\r\n;',
        'M  {tag} COMPLD\r\n   "1,49"\r\n;',
    ],
)
def test_an_answer_that_is_none_closes_the_line_and_a_read_asks_again(scripted, reply):
    answers = iter([reply, "M  {tag} COMPLD\r\n;"])
    switch, served = scripted({"RTRV-PATCH": lambda _: next(answers)})
    assert switch.read().connections == CrossConnects()
    assert len(served.connections) == 2


def test_answers_that_are_none_for_good_are_a_desync(scripted):
    switch, served = scripted({"RTRV-PATCH": "M  99 COMPLD\r\n;"})
    with pytest.raises(ProtocolDesync) as caught:
        switch.read()
    assert caught.value.device == switch.address
    assert len(served.connections) == 3


def test_a_late_answer_reaches_nobody(scripted):
    answers = iter(["raw:", 'M  {tag} COMPLD\r\n   "2,26"\r\n;'])
    switch, served = scripted({"RTRV-PATCH": lambda _: next(answers)}, timeout_s=20)
    with mock.patch.object(switch._session, "_timeout_s", 0.3), pytest.raises(Timeout):
        switch.read()
    with contextlib.suppress(OSError):  # it may have noticed that we left
        served.connections[0].sendall(f'{HEADER}M  7 COMPLD\r\n   "1,25"\r\n;'.encode())
    assert switch.read().connections == CrossConnects({2: 26})


def test_a_partial_completion_is_judged_by_reading(scripted):
    switch, _ = scripted(
        {
            "ENT-PATCH": "M  {tag} PRTL\r\n   /* 1 of 2 */\r\n;",
            "RTRV-PATCH": iter_reply("M  {tag} COMPLD\r\n;", 'M  {tag} COMPLD\r\n   "1,25"\r\n;'),
        }
    )
    with pytest.raises(PartialApply) as caught:
        switch.connect({1: 25, 2: 26})
    assert caught.value.report.pairs == {(1, 25): Status.DONE, (2, 26): Status.FAILED}
    assert caught.value.__cause__.device_code == "PRTL"


def iter_reply(*replies: str):
    waiting = iter(replies)
    return lambda _: next(waiting)


def test_a_command_refused_unread_is_a_device_error(scripted):
    switch, _ = scripted({"RTRV-PATCH": "raw:RL {tag}\r\n<"})
    with pytest.raises(DeviceError, match="RL") as caught:
        switch.read()
    assert caught.value.device_code == "RL"


def test_a_device_that_disconnected_while_idle_is_read_again(scripted):
    switch, served = scripted({"RTRV-PATCH": "M  {tag} COMPLD\r\n;"})
    served.connections[0].shutdown(socket.SHUT_RDWR)
    assert switch.read().connections == CrossConnects()
    assert len(served.connections) == 2


def test_a_port_that_disconnects_is_found_out_at_open(peer):
    served = peer(lambda connection: connection.shutdown(socket.SHUT_RDWR))
    with pytest.raises(ConnectError, match="during the login"):
        open_switch(f"polatis+tl1://127.0.0.1:{served.port}")


def test_ports_left_out_of_an_answer_are_a_desync(scripted):
    switch, _ = scripted({"RTRV-PORT-SHUTTER": 'M  {tag} COMPLD\r\n   "1:OPEN"\r\n;'})
    with pytest.raises(ProtocolDesync, match="ports are missing from the reply"):
        switch.ports()

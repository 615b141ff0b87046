"""The Polatis RESTCONF driver: the contract, compare-and-set by the device, faults."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from libraries import skip_without
from needs import needs

skip_without("h11")

from ocs_drivers import CrossConnects, open_switch
from ocs_drivers.credentials import Credentials
from ocs_drivers.errors import (
    AddressError,
    AnotherDevice,
    AuthError,
    Conflict,
    ConnectError,
    ConnectionLost,
    DeviceError,
    LoginFailed,
    OcsError,
    PartialApply,
    PortDisabled,
    PortFailed,
    ProtocolDesync,
    Timeout,
    VerifyMismatch,
)
from ocs_drivers.model import Attenuation, PortState, Status, Step
from ocs_drivers.protocols.http import HttpReply
from ocs_drivers.testing import SwitchContract
from ocs_drivers.vendors.polatis import rest_codec
from ocs_drivers.vendors.polatis.rest_driver import PolatisRest
from sim.twins.families.polatis.rest_frontend import RestFrontend

PAIRS = "/api/data/optical-switch:cross-connects"


# -- the contract, over a real socket


@pytest.fixture
@needs("process", "socket")
def twin(shared_twin) -> Any:
    return shared_twin("polatis", "--size=8x8", "--switch-time-ms=1")


class TestPolatisRest(SwitchContract):
    @pytest.fixture
    @needs("socket")
    def switch(self, twin):
        with open_switch(twin.urls["rest"], timeout_s=5) as switch:
            yield switch


class TestPolatisRestInXml(SwitchContract):
    @pytest.fixture
    @needs("socket")
    def switch(self, twin):
        with open_switch(f"{twin.urls['rest']}?media=xml", timeout_s=5) as switch:
            yield switch


# -- in memory


@pytest.fixture
def lab(world, open_in_memory):
    """Make a twin and an open driver on virtual time; whatever a test asks for by name."""

    def make(**options: str) -> tuple[Any, Any]:
        made = world("polatis", size=(8, 8), **options)
        return made, open_in_memory(made, "polatis+rest", "rest")

    return make


def requests(world: Any) -> list[str]:
    """Return the request lines that the twin received."""
    entries = world.do("transcript", clear=True)["entries"]
    received = [entry["data"] for entry in entries if entry["direction"] == "in" and entry["data"]]
    return [data.partition("\r\n")[0] for data in received]


def test_what_the_device_is_and_can_do(lab):
    _, switch = lab()
    assert switch.identity().vendor == "Polatis"
    found = switch.capabilities
    assert (found.inputs, found.outputs, found.atomic_whole, found.bulk_add) == (8, 8, True, False)
    assert (found.power_monitor, found.attenuator, found.shutter, found.login) == (True, True, True, True)


def test_a_whole_configuration_takes_three_round_trips(lab):
    world, switch = lab()
    requests(world)
    switch.apply(CrossConnects({i: 17 - i for i in range(1, 9)}))
    assert requests(world) == [f"GET {PAIRS} HTTP/1.1", f"PUT {PAIRS} HTTP/1.1", f"GET {PAIRS} HTTP/1.1"]
    assert world.truth() == {i: 17 - i for i in range(1, 9)}


def test_single_pairs_are_put_and_deleted_one_by_one(lab):
    world, switch = lab()
    switch.connect({1: 9, 2: 10})
    requests(world)
    switch.apply(CrossConnects({1: 11}), scope={1, 2})
    writes = [line for line in requests(world) if not line.startswith("GET")]
    assert writes == [
        f"DELETE {PAIRS}/pair=1 HTTP/1.1",
        f"DELETE {PAIRS}/pair=2 HTTP/1.1",
        f"PUT {PAIRS}/pair=1 HTTP/1.1",
    ]
    assert world.truth() == {1: 11}


def test_the_device_itself_refuses_when_somebody_else_was_faster(lab):
    world, switch = lab()
    switch.apply(CrossConnects({1: 9}))

    def elbow() -> None:  # after the read, before the first byte of the write
        world.do("operator", connect=[[2, 10]])

    requests(world)
    with pytest.raises(Conflict) as caught:
        switch.apply(CrossConnects({3: 11}), guard=elbow)
    assert (caught.value.expected, caught.value.actual) == ({1: 9}, {1: 9, 2: 10})
    assert world.truth() == {1: 9, 2: 10}
    assert [line for line in requests(world) if line.startswith("PUT")] == [f"PUT {PAIRS} HTTP/1.1"]


def test_changed_and_changed_back_is_no_conflict(lab):
    world, switch = lab()
    switch.apply(CrossConnects({1: 9}))
    asked: list[int] = []

    def elbow() -> None:
        if not asked:
            world.do("operator", connect=[[2, 10]])
            world.do("operator", disconnect=[2])
        asked.append(1)

    switch.apply(CrossConnects({3: 11}), guard=elbow)
    assert world.truth() == {3: 11}
    assert len(asked) == 2  # the guard is asked again before the second PUT


def test_a_step_planned_on_an_old_read_is_not_sent(lab):
    world, switch = lab()
    old = switch.read()
    world.do("operator", connect=[[2, 10]])
    switch.read()
    (step,) = switch.plan(CrossConnects({1: 9}), old)
    with pytest.raises(Conflict):
        switch.execute(step)
    assert world.truth() == {2: 10}


def test_a_posted_pair_vanishes_on_the_unit_of_one_lab_and_ours_stay(lab):
    world, switch = lab(post_vanishes_s="5")
    switch.connect({1: 9})
    switch.apply(CrossConnects({1: 9, 2: 10}))
    world.advance(60)
    assert world.truth() == {1: 9, 2: 10}
    assert not any(line.startswith("POST") for line in requests(world))


def test_labels_and_states_are_read_and_a_shutter_keeps_the_label(lab):
    world, switch = lab()
    world.twin.device.labels[2] = "to rack 4"
    switch.shutter([2], is_open=False)
    found = switch.ports()[2]
    assert (found.state, found.label) == (PortState.DISABLED, "to rack 4")
    switch.shutter([2], is_open=True)
    assert switch.ports()[2].state is PortState.ENABLED


def test_a_shutter_that_does_not_move_is_reported(lab):
    world, switch = lab()
    world.do("set_fault", fault="drop_command")
    with pytest.raises(DeviceError, match="the device accepted the command, but these ports are not"):
        switch.shutter([3], is_open=False)


@pytest.mark.parametrize(("fault", "error"), [("fail_port", PortFailed), ("disable_port", PortDisabled)])
@pytest.mark.parametrize("scope", [None, {1}])
def test_a_refusal_names_the_port_that_is_unfit(lab, fault, error, scope):
    world, switch = lab()
    world.do("set_fault", fault=fault, port=9)
    with pytest.raises(error) as caught:
        switch.apply(CrossConnects({1: 9}), scope=scope)
    assert caught.value.ports == (9,)
    assert world.truth() == {}


def test_an_output_that_a_stranger_took_is_a_conflict(lab):
    world, switch = lab()
    with pytest.raises(Conflict) as caught:
        switch.apply(
            CrossConnects({1: 9}), scope={1}, guard=lambda: world.do("operator", connect=[[2, 9]]) and None
        )
    assert caught.value.actual == CrossConnects({2: 9})
    assert world.truth() == {2: 9}


def test_a_change_on_other_ports_lets_a_single_pair_be_sent_once_more(lab):
    world, switch = lab()
    switch.connect({1: 9})
    asked: list[int] = []

    def elbow() -> None:
        asked.append(1)
        world.do("operator", connect=[[3 + len(asked), 11 + len(asked)]])

    requests(world)
    assert switch.apply(CrossConnects(), scope={1}, guard=elbow).complete
    assert len(asked) == 2
    deletions = [line for line in requests(world) if line.startswith("DELETE")]
    assert deletions == [f"DELETE {PAIRS}/pair=1 HTTP/1.1"] * 2
    assert world.truth() == {4: 12, 5: 13}


@pytest.mark.parametrize("scope", [None, {1}])
def test_the_guard_is_asked_before_a_write_is_sent_again_with_a_new_login(lab, monkeypatch, scope):
    world, switch = lab()
    exchange, refused = switch._session._exchange, []

    def forgetting(request, deadline):  # the server forgot the cookie; twins of this make have none
        if request.method != "GET" and not refused:
            refused.append(request.line)
            return HttpReply(401, b"", {}, "Unauthorized")
        return exchange(request, deadline)

    def cookie() -> None:
        switch._session._cookies.store("JSESSIONID=old")

    asked: list[int] = []

    def guard() -> None:
        cookie()
        asked.append(len(refused))

    monkeypatch.setattr(switch._session, "_exchange", forgetting)
    switch.apply(CrossConnects({1: 9}), scope=scope, guard=guard)
    assert asked == [0, 1]
    assert world.truth() == {1: 9}


@pytest.mark.parametrize(("fault", "error"), [("fail_port", PortFailed), ("disable_port", PortDisabled)])
def test_a_port_that_is_unfit_at_the_last_look_is_refused_in_the_plan(lab, fault, error):
    world, switch = lab()
    world.do("set_fault", fault=fault, port=9)
    switch.ports()
    requests(world)
    with pytest.raises(error) as caught:
        switch.apply(CrossConnects({1: 9}))
    assert caught.value.ports == (9,)
    assert switch.read().unfit.keys() == {9}
    assert all(line.startswith("GET") for line in requests(world))
    world.do("clear_fault", fault="all")
    assert switch.apply(CrossConnects({1: 9})).complete
    requests(world)
    switch.apply(CrossConnects({1: 10}))
    assert len(requests(world)) == 3  # nothing was unfit any more


def test_where_the_device_sends_no_tag_each_step_is_preceded_by_a_read(lab, monkeypatch):
    world, switch = lab()
    monkeypatch.setattr(RestFrontend, "_etag", "")
    switch.connect({1: 9})
    old = switch.read()
    world.do("operator", disconnect=[1], connect=[[1, 12]])
    (step,) = switch.plan(CrossConnects(), old, [1])
    for _ in range(2):
        with pytest.raises(Conflict):
            switch.execute(step)
    assert world.truth() == {1: 12}


def test_a_dropped_request_is_a_mismatch(lab):
    world, switch = lab()
    world.do("set_fault", fault="drop_command")
    with pytest.raises(VerifyMismatch) as caught:
        switch.apply(CrossConnects({1: 9}))
    assert caught.value.missing == {1: 9}


@pytest.mark.parametrize("executed", [True, False])
@pytest.mark.parametrize("scope", [None, {1}])
def test_a_line_lost_in_a_write_is_judged_by_reading_and_never_sent_again(lab, executed, scope):
    world, switch = lab()
    requests(world)

    def cut() -> None:
        world.do("set_fault", fault="close_connection", after_commands=1, executed=executed)

    try:
        report = switch.apply(CrossConnects({1: 9}), scope=scope, guard=cut)
    except PartialApply as error:
        report = error.report
    assert report.pairs == {(1, 9): Status.DONE if executed else Status.FAILED}
    assert world.truth() == ({1: 9} if executed else {})
    assert sum(line.startswith("PUT") for line in requests(world)) == 1


def test_a_garbled_answer_to_a_write_is_judged_by_reading(lab):
    world, switch = lab()
    report = switch.apply(
        CrossConnects({1: 9}), guard=lambda: world.do("set_fault", fault="garbage", count=1) and None
    )
    assert report.complete
    assert isinstance(report.outcomes[0].error, ProtocolDesync)


def test_silence_leaves_a_write_unknown_until_the_device_answers_again(lab):
    world, switch = lab()
    with pytest.raises(PartialApply) as caught:
        switch.apply(CrossConnects({1: 9}), guard=lambda: world.do("set_fault", fault="half_open") and None)
    assert caught.value.report.pairs == {(1, 9): Status.UNKNOWN}
    with pytest.raises(Timeout):
        switch.read()
    world.do("clear_fault", fault="all")
    assert dict(switch.read().connections) == world.truth()


def test_a_server_that_drops_clients_between_requests_is_called_again(lab):
    world, switch = lab()
    switch.apply(CrossConnects({1: 9}))
    world.do("set_fault", fault="close_connection")
    assert switch.apply(CrossConnects({2: 10})).complete
    assert world.truth() == {2: 10}


def test_a_device_that_was_off_has_what_its_boot_mode_keeps(lab):
    world, switch = lab()
    switch.apply(CrossConnects({1: 9}))
    world.do("power_cycle", off_s=0.0)
    assert switch.read().connections == CrossConnects()


def test_another_device_at_the_address_is_found_out_before_a_write(lab, world):
    first, switch = lab()
    second = world("polatis", size=(8, 8), settings={"name": "ocs2"})
    step = Step("replace", CrossConnects({1: 9}), CrossConnects(), CrossConnects({1: 9}))
    switch._session._transport._world = second
    first.do("set_fault", fault="close_connection")
    with pytest.raises(AnotherDevice, match="another device answers"):
        switch.execute(step)
    assert second.truth() == {}


@pytest.mark.parametrize("user", ["admin", "guest"])
def test_a_wrong_password_fails_and_is_not_shown(start_twin, user):
    twin = start_twin("polatis", "--size=4x4")
    with pytest.raises(LoginFailed) as caught:
        open_switch(twin.urls["rest"], credentials=(user, "hunter2"))
    assert "hunter2" not in str(caught.value)


@pytest.mark.socket
@pytest.mark.parametrize(
    ("serve", "error"),
    [
        (lambda connection: None, ConnectError),
        (lambda connection: connection.sendall(b"SSH-2.0-x\r\n"), ProtocolDesync),
        (
            lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"),
            ProtocolDesync,
        ),
        (lambda connection: connection.sendall(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"), DeviceError),
    ],
)
def test_what_is_not_a_polatis_is_found_out_at_open(peer, serve, error):
    served = peer(lambda connection: (connection.recv(65536), serve(connection)))
    with pytest.raises(error):
        open_switch(f"polatis+rest://127.0.0.1:{served.port}", timeout_s=2)


@pytest.mark.socket
def test_nobody_there_is_a_connect_error():
    with pytest.raises(ConnectError):
        open_switch("polatis+rest://127.0.0.1:1", timeout_s=1)


def test_an_option_nobody_knows_is_refused():
    with pytest.raises(AddressError, match="tls, ca, insecure"):
        open_switch("polatis+rest://127.0.0.1:1?post=1")


# -- a unit that differs from the twin


PRODUCT = {"manufacturer": "Polatis", "model-name": "OST", "serial-number": "1", "software-version": "6.7"}


class Unit:
    """Answers each resource with a document, or the next of several; a resource without one is a 404."""

    def __init__(self, **nodes: Any) -> None:
        ports = [{"port-id": port, "status": "ENABLED"} for port in range(1, 9)]
        self.nodes = {"product-information": PRODUCT, "port-config": {"port": ports}, **nodes}

    def __call__(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as received:
            while line := received.readline():
                length = 0
                while header := received.readline().strip():
                    name, _, value = header.decode().partition(": ")
                    length = int(value) if name == "Content-Length" else length
                received.read(length)
                node = line.split()[1].decode().rpartition("optical-switch:")[2]
                connection.sendall(self.answer(node))

    def answer(self, node: str) -> bytes:
        if node not in self.nodes:
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        content = self.nodes[node]
        if isinstance(content, list):
            content = content.pop(0) if len(content) > 1 else content[0]
        body = json.dumps({f"optical-switch:{node}": content}).encode()
        return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.fixture
def unit(peer):
    opened = []

    def start(**nodes: Any) -> Any:
        served = peer(Unit(**nodes))
        opened.append(open_switch(f"polatis+rest://127.0.0.1:{served.port}", timeout_s=5))
        return opened[-1]

    yield start
    for switch in opened:
        switch.close()


@pytest.mark.socket
def test_a_unit_without_size_in_its_name_has_as_many_inputs_as_outputs(unit):
    capabilities = unit().capabilities
    assert (capabilities.inputs, capabilities.outputs) == (4, 4)


@pytest.mark.socket
@pytest.mark.parametrize("status", [401, 403, 500, 503])
def test_a_unit_that_refuses_to_list_its_monitors_is_not_one_without(unit, monkeypatch, status):
    answer = Unit.answer

    def refusing(self: Unit, node: str) -> bytes:
        if node == rest_codec.POWERS.rpartition("optical-switch:")[2]:
            return f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n".encode()
        return answer(self, node)

    monkeypatch.setattr(Unit, "answer", refusing)
    with pytest.raises((DeviceError, AuthError)):
        _ = unit().capabilities


@pytest.mark.socket
def test_a_unit_without_power_monitors_says_so(unit):
    switch = unit()
    assert not switch.capabilities.power_monitor
    assert switch.power([1, 5]) == {1: None, 5: None}


@pytest.mark.socket
def test_a_unit_without_etag_is_written_without_a_condition(unit):
    switch = unit(**{"cross-connects": {}})
    assert switch.read().connections == CrossConnects()
    with pytest.raises(OcsError):  # this unit does not really connect; that it was told is what matters
        switch.apply(CrossConnects({1: 5}))


@pytest.mark.socket
@pytest.mark.parametrize("model", ["I-OST-24x24-LU1", "OST-3x4"])
def test_a_model_that_does_not_fit_the_ports_is_a_desync(unit, model):
    with pytest.raises(ProtocolDesync, match=f"8 ports, but the model is {model}"):
        unit(**{"product-information": PRODUCT | {"model-name": model}})


@pytest.mark.socket
def test_ports_that_the_unit_does_not_have_are_a_desync(unit):
    switch = unit(**{"cross-connects": {"pair": [{"ingress": 1, "egress": 99}]}})
    with pytest.raises(ProtocolDesync, match="impossible circuits for this switch"):
        switch.read()


@pytest.mark.socket
def test_a_list_that_shrinks_is_a_desync(unit):
    ports = [{"port-id": port, "status": "ENABLED"} for port in range(1, 9)]
    powers = [{"port-id": port, "power": "-3.00"} for port in range(1, 9)]
    switch = unit(
        **{
            "port-config": [{"port": ports}, {"port": ports[:-1]}],
            "opm-power": [{"port": powers}, {"port": powers[:-1]}],
        }
    )
    with pytest.raises(ProtocolDesync, match=r"ports, but [0-9]+ in the first reading"):
        switch.ports()
    with pytest.raises(ProtocolDesync, match="power readings are missing"):
        switch.power([8])


# -- the faults once more, in real time over a real socket


REAL_FAULTS = {
    "close_connection": {"after_commands": 1},
    "drop_command": {},
    "garbage": {},
    "delay_reply": {"seconds": 0.6},
    "fail_port": {"port": 9},
}


@pytest.mark.long
@pytest.mark.parametrize("fault", REAL_FAULTS)
def test_every_fault_on_a_real_socket_ends_in_the_target_or_a_true_report(twin, fault):
    with open_switch(twin.urls["rest"], timeout_s=0.4) as switch:
        try:
            report = switch.apply(
                CrossConnects({1: 9}),
                guard=lambda: twin.do("set_fault", fault=fault, **REAL_FAULTS[fault]) and None,
            )
        except OcsError as error:
            report = error.report
        twin.do("clear_fault", fault="all")
    truth = twin.truth()
    status = report.pairs[1, 9]
    assert status is Status.UNKNOWN or (status is Status.DONE) == (truth == {1: 9})
    assert (status is Status.UNKNOWN) <= (fault == "delay_reply")


def test_a_closed_driver_asks_nothing(lab):
    _, switch = lab()
    switch.close()
    with pytest.raises(ConnectionLost):
        switch.read()


# -- media, attenuators, nothing


def test_media_is_json_or_xml():
    with pytest.raises(AddressError, match="media must be json or xml, not"):
        open_switch("polatis+rest://10.0.0.1?media=yaml")


def sent(world: Any) -> str:
    """Return all that the twin received."""
    entries = world.do("transcript", clear=True)["entries"]
    return "".join(entry["data"] for entry in entries if entry["direction"] == "in")


@pytest.mark.parametrize("media", ["json", "xml"])
def test_one_medium_is_spoken_throughout(world, media):
    made = world("polatis", size=(8, 8))
    switch = PolatisRest(
        made.device,
        made.transport("rest"),
        credentials=Credentials("admin", "root"),
        timeout_s=5.0,
        encoding=media,
        clock=made.clock,
    )
    switch.open()
    try:
        switch.apply(CrossConnects({1: 9, 2: 10}))
        switch.apply(CrossConnects({1: 11}), scope={1})
        switch.shutter([3], is_open=False)
        switch.set_attenuation(12, Attenuation("relative", -3.0, 2))
        assert switch.attenuation(12) == Attenuation("relative", -3.0, 2)
        assert switch.ports()[3].state is PortState.DISABLED
        assert switch.power([1])[1] is not None
        assert switch.read().connections == CrossConnects({1: 11, 2: 10})
    finally:
        switch.close()
    assert made.truth() == {1: 11, 2: 10}
    assert f"yang-data+{'xml' if media == 'json' else 'json'}" not in sent(made)


def test_attenuators_are_set_and_proven(lab):
    world, switch = lab()
    switch.connect({1: 9})
    before = switch.power([9])[9].dbm
    for wanted in (Attenuation("relative", -5.0), Attenuation("absolute", before - 5.0), Attenuation("none")):
        switch.set_attenuation(9, wanted)
        assert switch.attenuation(9).mode == wanted.mode
        lost = 0.0 if wanted.mode == "none" else 5.0
        assert switch.power([9])[9].dbm == pytest.approx(before - lost, abs=0.02)
    for port in (1, 99):
        with pytest.raises(OcsError):
            switch.set_attenuation(port, Attenuation("none"))
    world.do("set_fault", fault="drop_command")
    with pytest.raises(DeviceError, match=r"the device accepted the command, but Attenuation\(mode='none'"):
        switch.set_attenuation(9, Attenuation("relative", -5.0))


@pytest.mark.parametrize("nothing", ["204", "200"])
def test_a_switch_without_a_pair_is_read_whichever_way_it_says_so(lab, nothing):
    world, switch = lab(rest_nothing=nothing)
    assert switch.read().connections == CrossConnects()
    switch.apply(CrossConnects({1: 9}))  # the tag of nothing holds as any other
    switch.apply(CrossConnects())
    assert world.truth() == {}

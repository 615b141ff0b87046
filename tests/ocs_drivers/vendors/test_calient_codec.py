"""Both codecs of a Calient: published dialogues byte by byte, rows, documents, echoes, any noise."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ocs_drivers import CrossConnects
from ocs_drivers.credentials import Credentials
from ocs_drivers.errors import PortBusy, ProtocolDesync
from ocs_drivers.model import PendingMove, PortState, Power
from ocs_drivers.transports.echo import EchoCanceller
from ocs_drivers.vendors.calient import rest_codec, tl1_codec
from ocs_drivers.vendors.calient.circuits import (
    CircuitTable,
    check_not_provisioned,
    decode_port_state,
    make_power_reading,
)
from ocs_drivers.vendors.calient.ports import Circuit, PortNames, parse_circuit_name
from ocs_drivers.vendors.calient.tl1_driver import CalientTl1

pytestmark = pytest.mark.codec

ROW = (
    "2.3.6-3.2.5:SRCPORT=2.3.6,DSTPORT=3.2.5,GRPNAME=DSTRAUB,CONNNAME=2.3.6-3.2.5,CONNTYPE=2WAY,"
    "AS=UMA,OS=RDY,OC=OK,PS=UPR,AL=CL"
)
PORT = "6.1.1:WX,TRANSIT,TRANSIT:INAS=IS,INOS=IS,INOC=OK,INRS=NPR,OUTAS=IS,OUTOS=IS,OUTOC=OK,OUTRS=NPR"
SUMMARY = (
    "1.1.1:ALIAS=NONE,INPWR=NONE,OUTPWR=NONE,CONNNAME1=1.1.1>1.1.2,CONNSTATE1=ACT,"
    "CONNNAME2=NONE,CONNSTATE2=NONE"
)
NODE = "CALIENT01TS:SERIALNUMBER=C1234,SWPACKAGE=6.0-3,STATUS=OK,CHASSISTYPE=S162,PLATFORM=VERSION2"
NAMES = ("1.1.1", "1.1.2", "2.3.6", "3.2.5")


# -- rows, as captures show them


def test_published_row_of_a_circuit():
    (circuit,) = tl1_codec.decode_circuits((ROW,))
    assert circuit == Circuit("2.3.6-3.2.5", "2.3.6", "3.2.5", True, "provisioned", True)


@pytest.mark.parametrize(
    ("states", "state", "lit"),
    [
        ("AS=UMA,OS=RDY,OC=OK", "provisioned", True),
        ("AS=IS,OS=RDY,OC=OK", "moving", True),
        ("AS=IS,OS=IS,OC=OK", "made", True),
        ("AS=IS,OS=IS,OC=FAIL", "made", False),
    ],
)
def test_states_of_a_circuit(states, state, lit):
    (circuit,) = tl1_codec.decode_circuits((ROW.replace("AS=UMA,OS=RDY,OC=OK", states),))
    assert (circuit.state, circuit.is_lit) == (state, lit)


def test_published_row_of_a_port():
    found = tl1_codec.decode_ports((PORT,))
    assert {name: port.states for name, port in found.items()} == {
        "6.1.1": (PortState.ENABLED, PortState.ENABLED)
    }


def test_published_row_of_a_port_that_no_circuit_holds_is_free():
    row = "1.1.1:WX,NONE,NONE:INAS=OOS-NP,INOS=OOS,INOC=OK,INRS=NPR,OUTAS=OOS-NP,OUTOS=OOS,OUTOC=OK,OUTRS=NPR"
    assert tl1_codec.decode_ports((row,))["1.1.1"].states == (PortState.ENABLED, PortState.ENABLED)


def test_published_row_of_a_summary_is_darkness():
    assert tl1_codec.decode_powers((SUMMARY,)) == {"1.1.1": (None, None)}
    assert tl1_codec.decode_aliases((SUMMARY,)) == {"1.1.1": ""}
    lit = SUMMARY.replace("INPWR=NONE", "INPWR=-3.4").replace("ALIAS=NONE", "ALIAS=rack 4")
    assert tl1_codec.decode_powers((lit,)) == {"1.1.1": (-3.4, None)}
    assert tl1_codec.decode_aliases((lit,)) == {"1.1.1": "rack 4"}


def test_published_row_of_the_node():
    identity = tl1_codec.decode_identity((NODE,))
    assert (identity.serial, identity.model, identity.firmware) == ("C1234", "S162", "6.0-3")


def test_a_port_that_is_merely_idle_or_dark_can_be_used():
    assert decode_port_state("UMA", "RDY") is PortState.ENABLED
    (port,) = tl1_codec.decode_ports((PORT.replace("OC=OK", "OC=FAIL"),)).values()
    assert port.states == (PortState.ENABLED, PortState.ENABLED)


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        ROW.replace("SRCPORT=2.3.6,", ""),
        ROW.replace("2WAY", "3WAY"),
        ROW.replace("AS=UMA,", ""),
        ROW.replace("OC=OK,", ""),
    ],
)
def test_rows_that_are_no_circuits(line):
    with pytest.raises(ProtocolDesync, match="as Calient speaks it"):
        tl1_codec.decode_circuits((line,))


@pytest.mark.parametrize("power", ["", "bright", "nan", "inf", "-1e999"])
def test_what_is_no_power(power):
    with pytest.raises(ProtocolDesync, match="not a power"):
        tl1_codec.decode_powers((SUMMARY.replace("INPWR=NONE", f"INPWR={power}"),))
    if power:
        with pytest.raises(ProtocolDesync, match="not a power"):
            rest_codec.decode_powers({"port": "1.1.1", "inpower": power, "outpower": "NONE"})


def test_a_port_that_is_listed_twice():
    with pytest.raises(ProtocolDesync, match="twice"):
        tl1_codec.decode_ports((PORT, PORT))
    with pytest.raises(ProtocolDesync, match="twice"):
        rest_codec.decode_summary([{"port": "1.1.1"}, {"port": "1.1.1"}])


def test_a_node_that_says_too_much():
    with pytest.raises(ProtocolDesync):
        tl1_codec.decode_identity((NODE, NODE))


# -- documents


HALF = {
    "conn": "3.3.1>3.3.2",
    "inp": "-3.4",
    "outp": "-4.8",
    "loss": "1.4",
    "alarm": "CL",
    "as": "IS",
    "os": "IS",
    "oc": "OK",
    "state": "ACT",
}
BACK = HALF | {"conn": "3.3.2>3.3.1"}


def document(**changes: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": "3.3.1>3.3.2",
            "group": "SYSTEM",
            "dir": "uni",
            "band": "O",
            "half1": HALF,
            "half2": {},
        }
        | changes
    ]


def test_published_list_of_circuits():
    (circuit,) = rest_codec.decode_circuits(document())
    assert circuit == Circuit("3.3.1>3.3.2", "3.3.1", "3.3.2", False, "made", True)


@pytest.mark.parametrize(
    ("back", "state", "lit"),
    [
        (BACK, "made", True),
        (BACK | {"os": "RDY"}, "moving", True),
        (BACK | {"as": "UMA", "os": "RDY"}, "provisioned", True),
        (BACK | {"oc": "FAIL"}, "made", False),
    ],
)
def test_a_two_way_circuit_is_as_far_as_its_slower_half(back, state, lit):
    (circuit,) = rest_codec.decode_circuits(document(name="3.3.1-3.3.2", dir="bi", half2=back))
    assert circuit == Circuit("3.3.1-3.3.2", "3.3.1", "3.3.2", True, state, lit)


@pytest.mark.parametrize(
    "changes",
    [{"half1": None}, {"half1": {}}, {"dir": None}, {"dir": "bi"}, {"dir": "bi", "half2": HALF}, {"name": 7}],
)
def test_documents_that_are_no_circuits(changes):
    with pytest.raises(ProtocolDesync, match="not REST as Calient speaks it"):
        rest_codec.decode_circuits(document(**changes))


def test_published_details_of_a_port():
    detail = {
        "port": "3.3.1",
        "inpower": "-3.4",
        "outpower": "-4.8",
        "inas": "IS",
        "inos": "IS",
        "inoc": "OK",
        "outas": "OOS-NP",
        "outos": "OOS",
        "outoc": "NOHW",
        "incircuit": "3.3.1>3.3.2",
        "outcircuit": "",
        "inalias": "rack 4",
        "inowner": "",
        "inopt": "",
    }
    for shape in (detail, [detail]):
        item = rest_codec.decode_detail(shape)
        assert rest_codec.decode_powers(item) == (-3.4, -4.8)
        assert rest_codec.decode_port(item).alias == "rack 4"
    with pytest.raises(ProtocolDesync):
        rest_codec.decode_detail([detail, detail])


def test_published_results():
    results = [
        {"status": "1", "msg": "x", "description": "y"},
        {"status": "0", "msg": "x", "description": "y"},
    ]
    assert rest_codec.decode_failures(results, 2) == ["", "x: y"]
    assert rest_codec.decode_failures([{"status": 0}], 1) == ["Failed"]
    nested = [{"response": result} for result in results]  # as the one client reads that parses a bulk
    assert rest_codec.decode_failures(nested, 2) == ["", "x: y"]
    for wrong in (
        results[:1],
        [{"status": "2"}, {"status": "1"}],
        [{}, {}],
        {"status": "1"},
        [{"response": "1"}, nested[0]],
        [{"response": {}}, nested[0]],
    ):
        with pytest.raises(ProtocolDesync):
            rest_codec.decode_failures(wrong, 2)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["IS", "uni", "bi", "1.1.1>1.1.2", ""]),
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "dir", "half1", "conn", "as", "os", "port"]), inside)
    ),
    max_leaves=8,
)


@pytest.mark.slow
def test_any_document_is_decoded_or_a_desync():
    met: Counter[str] = Counter()
    half = st.sampled_from([HALF, BACK]) | json_values
    circuit = st.builds(
        lambda way, one, two: document(dir=way, half1=one, half2=two),
        st.sampled_from(["uni", "bi"]),
        half,
        half,
    )
    decoders: list[Any] = [
        rest_codec.decode_circuits,
        rest_codec.decode_summary,
        rest_codec.decode_detail,
        lambda given: rest_codec.decode_failures(given, 1),
        rest_codec.decode_node,
    ]

    @given(st.sampled_from(decoders), circuit | st.lists(json_values, max_size=2) | json_values)
    @settings(max_examples=300)
    def decode(decoder: Any, content: Any) -> None:
        try:
            decoder(json.loads(json.dumps(content)))
        except ProtocolDesync:
            met["desync"] += 1
        else:
            met["decoded"] += 1

    decode()
    assert met["desync"] >= 50
    assert met["decoded"] >= 50


@pytest.mark.slow
def test_any_line_is_decoded_or_a_desync():
    met: Counter[str] = Counter()
    decoders: list[Any] = [
        tl1_codec.decode_circuits,
        tl1_codec.decode_ports,
        tl1_codec.decode_powers,
        tl1_codec.decode_aliases,
    ]

    @given(st.text(max_size=30), st.integers(0, 140), st.sampled_from([ROW, PORT, SUMMARY]))
    @settings(max_examples=300)
    def decode(noise: str, cut: int, row: str) -> None:
        for decoder in decoders:
            try:
                decoder((row[:cut] + noise + row[cut + len(noise) :],))
            except ProtocolDesync:
                met["desync"] += 1
            else:
                met["decoded"] += 1

    decode()
    assert min(met["desync"], met["decoded"]) >= 100


# -- names and circuits


def test_ports_are_in_the_order_of_the_chassis_however_they_are_listed():
    names = PortNames(["2.1.1", "1.10.1", "1.2.1", "1.2.10", "1.2.9"])
    assert [names.get_name(number) for number in range(1, 6)] == [
        "1.2.1",
        "1.2.9",
        "1.2.10",
        "1.10.1",
        "2.1.1",
    ]
    assert [names.get_name(number + 5) for number in range(1, 6)] == [
        names.get_name(number) for number in range(1, 6)
    ]


@pytest.mark.parametrize("name", ["", "1.1", "a.b.c", "1.1.1.1", "1.1.1>1.1.2", "1.1.٣"])
def test_what_is_no_port(name):
    with pytest.raises(ProtocolDesync):
        PortNames([name])
    with pytest.raises(ProtocolDesync):
        parse_circuit_name(f"1.1.1>{name}" if "." in name else name)


def circuit(name: str, state: Any = "made") -> Circuit:
    source, target, is_two_way = parse_circuit_name(name)
    return Circuit(name, source, target, is_two_way, state, True)


@pytest.mark.parametrize(
    "names", [("1.1.1>1.1.2", "2.3.6>1.1.2"), ("1.1.1>1.1.2", "1.1.1>2.3.6"), ("1.1.1-1.1.2", "1.1.2>1.1.1")]
)
def test_circuits_that_cannot_be(names):
    with pytest.raises(ProtocolDesync, match="impossible circuits"):
        CircuitTable(PortNames(NAMES), [circuit(name) for name in names])


def test_circuits_on_ports_that_were_never_listed():
    with pytest.raises(ProtocolDesync, match="which it did not list"):
        CircuitTable(PortNames(NAMES), [circuit("1.1.1>4.4.4")])


circuits = st.builds(
    lambda ends, way, state: circuit(f"{ends[0]}{way}{ends[1]}", state),
    st.permutations(NAMES),
    st.sampled_from("->"),
    st.sampled_from(["provisioned", "moving", "made"]),
)


@pytest.mark.slow
def test_every_circuit_is_either_connected_or_pending():
    met: Counter[str] = Counter()

    @given(st.lists(circuits, max_size=3))
    @settings(max_examples=300)
    def check(found: list[Circuit]) -> None:
        names = PortNames(NAMES)
        try:
            seen = CircuitTable(names, found).make_snapshot(0.0, {})
        except ProtocolDesync:
            met["impossible"] += 1
            return
        standing = {pair for c in found if c.state != "provisioned" for pair in names.get_pairs(c)}
        assert seen.connections.pairs == standing
        booked = {pair for c in found if c.state == "provisioned" for pair in names.get_pairs(c)}
        assert {move.pair for move in seen.pending} == booked
        for move in seen.pending:
            assert (
                CircuitTable(names, found).find_other_pair((move.pair[0], move.pair[1] % 4 + 5)) is not None
            )
        met["pending" if booked else "connected"] += 1

    check()
    assert met["impossible"] >= 10
    assert met["pending"] >= 50
    assert met["connected"] >= 20


# -- the published dialogue


class Script:
    """A transport that expects commands, tags left out, and answers each with the body given."""

    def __init__(self, *turns: tuple[str, str], how: str = "COMPLD") -> None:
        self._turns = list(turns)
        self._waiting = b""
        self.is_open = False

    def open(self, timeout_s: float) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False

    def has_input(self) -> bool:
        return False

    def send(self, data: bytes, deadline: object) -> None:
        sent = data.decode().strip()
        tag = sent.rstrip(";").split(":")[3]
        expected, body = self._turns.pop(0) if self._turns else ("CANC-USER::admin:#:;", "")
        assert re.sub(rf":{tag}(?=[:;])", ":#", sent, count=1) == expected
        how = "DENY" if body.startswith("   ?") else "COMPLD"
        body = body.replace("   ?", "   ")
        self._waiting += f"CALIENT01TS 16-11-07 11:20:14\r\nM  {tag} {how}\r\n{body};\r\n".encode()

    def receive(self, deadline: object) -> bytes:
        data, self._waiting = self._waiting, b""
        return data

    @property
    def finished(self) -> bool:
        return not self._turns


def quoted(*rows: str) -> str:
    return "".join(f'"{row}"\r\n' for row in rows)


def port_rows(*names: str) -> str:
    return quoted(*(PORT.replace("6.1.1", name) for name in names or NAMES))


LOGIN = ("ACT-USER::admin:#::pw;", '"admin:admin,2"\r\n/* NOTICE\r\n; keep out */\r\n')
OPENING = (
    LOGIN,
    ("RTRV-NE:::#:;", quoted(NODE)),
    ("RTRV-PORT::0:#:;", port_rows("3.2.5", "1.1.1", "2.3.6", "1.1.2")),
)
CIRCUITS = "RTRV-CRS:::#::ALL;"
PORTS = ("RTRV-PORT::0:#:;", port_rows())


def get_port_names(states: str) -> str:
    return quoted(
        f"1.1.1>1.1.2:SRCPORT=1.1.1,DSTPORT=1.1.2,GRPNAME=SYSTEM,CONNNAME=1.1.1>1.1.2,CONNTYPE=1WAY,{states}"
    )


class Clock:
    """Time passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def scripted(
    *turns: tuple[str, str], opening: tuple[tuple[str, str], ...] = OPENING
) -> tuple[CalientTl1, Script]:
    script = Script(*opening, *turns)
    switch = CalientTl1(
        "calient+tl1://script", script, credentials=Credentials("admin", "pw"), timeout_s=5, clock=Clock()
    )
    switch.open()
    return switch, script


def test_published_dialogue_of_a_connection():
    switch, script = scripted(
        (CIRCUITS, ""),
        PORTS,
        ("ENT-CRS::1.1.1,1.1.2:#::SYSTEM,1WAY;", ""),
        ("ACT-CRS::1.1.1,1.1.2:#::1.1.1>1.1.2,SYSTEM;", ""),
        (CIRCUITS, get_port_names("AS=UMA,OS=RDY,OC=OK")),
        (CIRCUITS, get_port_names("AS=IS,OS=RDY,OC=OK")),
        (CIRCUITS, get_port_names("AS=IS,OS=IS,OC=OK")),
    )
    assert switch.connect({1: 6}).complete
    assert script.finished


def test_published_dialogue_of_a_disconnection():
    switch, script = scripted(
        (CIRCUITS, quoted(ROW.replace("AS=UMA,OS=RDY", "AS=IS,OS=IS"))),
        PORTS,
        ("CANC-CRS:::#::2.3.6-3.2.5;", ""),
        ("DLT-CRS:::#::2.3.6-3.2.5;", ""),
        (CIRCUITS, ""),
    )
    assert switch.disconnect([3, 4]).complete
    assert script.finished


def test_a_circuit_with_a_name_of_its_own_is_removed_by_it():
    named = ROW.replace("AS=UMA,OS=RDY", "AS=IS,OS=IS").replace("CONNNAME=2.3.6-3.2.5", "CONNNAME=uplink")
    switch, script = scripted(
        (CIRCUITS, quoted(named)),
        PORTS,
        ("CANC-CRS:::#::uplink;", ""),
        ("DLT-CRS:::#::uplink;", ""),
        (CIRCUITS, ""),
    )
    assert switch.disconnect([3, 4]).complete
    assert script.finished


def test_already_logged_in_is_a_welcome():
    denied = (LOGIN[0], "   ?SAIS\r\n   /* Already logged in */\r\n")
    switch, _ = scripted((CIRCUITS, ""), PORTS, opening=(denied, *OPENING[1:]))
    assert switch.read().connections == CrossConnects()


def test_pages_are_joined():
    switch, script = scripted()
    two = get_port_names("AS=IS,OS=IS,OC=OK"), quoted(ROW.replace("AS=UMA,OS=RDY", "AS=IS,OS=IS"))
    page = "CALIENT01TS 16-11-07 11:20:14\r\nM  4 COMPLD\r\n"
    script._turns = [(CIRCUITS, f"{two[0]}>\r\n{page}{two[1]}"), PORTS]
    assert switch.read().connections == CrossConnects({1: 6, 3: 8, 4: 7})


def test_a_table_that_leaves_ports_out_is_never_believed():
    switch, _ = scripted()
    switch._retry = lambda ask: ask()
    switch._session._transport._transport._turns = [(CIRCUITS, ""), (PORTS[0], port_rows("1.1.1"))]
    with pytest.raises(ProtocolDesync, match="ports are missing, or differ from the first reading"):
        switch.read()


# -- echoes


class Pieces:
    """A transport that gives pieces of bytes."""

    is_open = True

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    def send(self, data: bytes, deadline: object) -> None:
        pass

    def receive(self, deadline: object) -> bytes:
        return self._pieces.pop(0)


REPLY = b'\r\n   ocs1 26-01-31 12:00:00\r\nM  5 COMPLD\r\n   "RTRV-CRS:::"\r\n;\r\nagent> '


@given(
    st.lists(st.integers(0, 140), max_size=12), st.booleans(), st.sampled_from([b"", b"\r\nagent> ", b"RTRV"])
)
def test_an_echo_in_any_pieces_is_taken_out_and_nothing_else(cuts, repeats, before):
    command = b"RTRV-CRS:::5::ALL;"
    received = before + (command + b"\r\n" if repeats else b"") + REPLY
    edges = [0, *sorted(min(cut, len(received)) for cut in cuts), len(received)]
    pieces = [received[a:b] for a, b in itertools.pairwise(edges) if a < b]
    line: Any = EchoCanceller(Pieces(pieces))  # type: ignore[arg-type]
    line.send(command + b"\r\n", None)
    got = b"".join(line.receive(None) for _ in range(len(pieces)))
    assert got == before + (b"\r\n" if repeats else b"") + REPLY


def test_an_echo_holds_nothing_back_that_ends_a_reply():
    line: Any = EchoCanceller(Pieces([REPLY.removesuffix(b"agent> ")]))  # type: ignore[arg-type]
    line.send(b"RTRV-CRS:::5::ALL;\r\n", None)
    assert line.receive(None).endswith(b";\r\n")


def test_a_port_is_listed_once():
    with pytest.raises(ProtocolDesync, match="listed a port twice"):
        PortNames(["1.1.1", "1.1.1"])


def test_only_provisioned_circuits_whose_ports_are_known_are_in_the_way():
    unknown = PendingMove("connect", None, request="1.1.1>9.9.9")
    check_not_provisioned([unknown], [(1, 5)], [1], device="ocs")
    booked = PendingMove("connect", (2, 5), request="1.1.2>1.1.1")
    check_not_provisioned([booked], [(3, 7)], [3], device="ocs")
    check_not_provisioned([booked], [(1, 5)], [1, 2], device="ocs")
    with pytest.raises(PortBusy, match=r"1\.1\.2>1\.1\.1 is provisioned there"):
        check_not_provisioned([unknown, booked], [(1, 5)], [1], device="ocs")


def test_a_circuit_without_light_makes_its_output_dark():
    circuits = CircuitTable(PortNames(NAMES), [Circuit("x", "1.1.1", "1.1.2", False, "made", False)])
    assert circuits.is_dark(6)
    assert not circuits.is_dark(5)
    assert make_power_reading(-3.4, is_dark=True) == Power(-3.4, below_floor=True)
    assert make_power_reading(None).below_floor
    assert not make_power_reading(-3.4).below_floor


def test_admin_states_go_before_operational_ones():
    found = [
        decode_port_state(*states)
        for states in (("OOS", "IS"), ("LCK", "OOS"), ("IS", "OOS-AU"), ("UMA", "RDY"))
    ]
    assert found == [PortState.DISABLED, PortState.LOCKED, PortState.FAILED, PortState.ENABLED]


def test_a_summary_that_tells_no_powers_tells_none():
    item = {"port": "1.1.1", "inpower": "-3.4"}
    assert rest_codec.has_fields(item, {"inpower"})
    assert not rest_codec.has_fields(item, rest_codec.POWER_FIELDS)

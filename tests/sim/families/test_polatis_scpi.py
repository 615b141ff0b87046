"""The SCPI frontend, line by line, over real sockets."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from needs import needs

from sim.twins.families.polatis.scpi_frontend import LineReader, format_ports, parse_port_list, split_units
from sim.twins.frontends.scpi import ErrorQueue, ScpiError, compile_header

NO_ERROR = '0, "No error"'


def test_the_example_session(start_twin):
    """The example session of the published notes, byte for byte."""
    twin = start_twin(32, 32)
    client = twin.scpi()
    client.socket.sendall(b"*CLS\r\n")
    client.socket.sendall(b":oxc:swit:conn:only (@1,2),(@33,34);*OPC?\r\n")
    assert client.line() == "1"
    client.socket.sendall(b":oxc:swit:conn:stat?;:syst:err?\r\n")
    assert client.line() == '(@1,2),(@33,34);0, "No error"'
    sent = [(entry["direction"], entry["data"]) for entry in twin.control("transcript")["entries"]]
    assert "".join(data for direction, data in sent if direction == "out") == (
        '1\r\n(@1,2),(@33,34);0, "No error"\r\n'
    )
    assert "".join(data for direction, data in sent if direction == "in") == (
        "*CLS\r\n:oxc:swit:conn:only (@1,2),(@33,34);*OPC?\r\n:oxc:swit:conn:stat?;:syst:err?\r\n"
    )


@pytest.fixture
@needs("socket")
def client(start_twin):
    return start_twin(24, 24).scpi()


def test_identity_and_size(client):
    maker, product, serial, firmware = client.ask("*IDN?").split(",")
    assert (maker, product, firmware) == ("Polatis", "I-OST-24x24-LU1-DMHNS-801", "6.5.2.18")
    assert serial.startswith("SIM")
    assert client.ask(":oxc:swit:size?") == "24,24"


def test_every_row_of_the_connection_table(client):
    assert client.ask(":oxc:swit:conn:stat?") == "(@),(@)"
    client.send(":oxc:swit:conn:add (@1,2,3),(@27,26,30)")
    assert client.ask(":oxc:swit:conn:stat?") == "(@1,2,3),(@27,26,30)"
    assert client.ask(":oxc:swit:conn:port? 2") == '"26"'
    assert client.ask(":oxc:swit:conn:port? 26") == '"2"'
    assert client.ask(":oxc:swit:conn:port? 4") == '""'
    client.send(":oxc:swit:conn:sub (@1),(@27)")
    assert client.ask(":oxc:swit:conn:stat?") == "(@2,3),(@26,30)"
    client.send(":oxc:swit:conn:sub (@2,3),(@)")
    assert client.ask(":oxc:swit:conn:stat?") == "(@),(@)"
    client.send(":oxc:swit:conn:only (@5),(@25)")
    client.send(":oxc:swit:conn:only (@1,2),(@41,42)")
    assert client.ask(":oxc:swit:conn:stat?") == "(@1,2),(@41,42)"
    client.send(":oxc:swit:disc:all")
    assert client.ask(":oxc:swit:conn:stat?;:syst:err:all?") == f"(@),(@);{NO_ERROR}"


def test_reset_drops_all_connections(client):
    client.send(":oxc:swit:conn:add (@1),(@25)")
    client.send("*RST")
    assert client.ask(":oxc:swit:conn:stat?") == "(@),(@)"


def test_ports_are_disabled_and_enabled(client):
    client.send(":oxc:swit:port:dis (@2,4)")
    assert client.ask(":oxc:swit:port:stat? (@2,3,4)") == "(D,E,D)"
    assert client.ask(":oxc:swit:port:stat?") == "(E,D,E,D" + ",E" * 44 + ")"
    client.send(":oxc:swit:port:enab (@2)")
    assert client.ask(":oxc:swit:port:stat? (@2,4)") == "(E,D)"


def test_boot_mode_and_network(client):
    assert client.ask(":oxc:boot:mode?") == "DARK"
    client.send(":oxc:boot:mode aut")
    assert client.ask(":oxc:boot:mode?") == "AUTOSAVE"
    client.send(":OXC:BOOT:MODE RESTORE")
    assert client.ask(":oxc:boot:mode?") == "RESTORE"
    client.send(":oxc:boot:mode dim")
    assert client.ask(":syst:err?") == '-224, "Illegal parameter value;dim"'
    assert client.ask(":syst:comm:netw:addr?") == (
        'IP="127.0.0.1" Gateway="0.0.0.0" Mask="255.255.255.0" Broadcast="127.0.0.255"'
    )


def test_power(client):
    client.send(":oxc:swit:conn:add (@3),(@30)")
    assert client.ask("*OPC?;:pmon:pow? (@3,30,31)") == "1;(-0.30,-1.50,-60.00)"
    client.send(":oxc:swit:port:dis (@3)")
    assert client.ask(":pmon:pow? (@3,30)") == "(-0.30,-60.00)"
    client.send(":oxc:swit:port:enab (@3)")
    assert client.ask(":pmon:pow? (@30)") == "(-1.50)"


def test_at_most_256_ports_in_a_power_query(start_twin):
    client = start_twin(200, 200).scpi()
    ports = ",".join(map(str, range(1, 258)))
    assert client.ask(f":pmon:pow? (@{ports});:syst:err?") == '-223, "Too much data;at most 256 ports"'
    assert client.ask(":pmon:pow? (@1:256)").count(",") == 255


ERRORS = [
    (":oxc:swit:conn:addd (@1),(@25)", '-113, "Undefined header;:oxc:swit:conn:addd"'),
    (":oxc:switc:size?", '-113, "Undefined header;:oxc:switc:size?"'),
    (":oxc:swit:conn:add (@1)", '-109, "Missing parameter"'),
    (":oxc:swit:conn:add (@1),(@25),(@26)", '-108, "Parameter not allowed;(@26)"'),
    (":oxc:swit:conn:add 1,25", '-102, "Syntax error;1"'),
    (":oxc:swit:conn:add (@1-3),(@25)", '-102, "Syntax error;1-3"'),
    (":oxc:swit:conn:add (@0),(@25)", '-222, "Data out of range;port 0 does not exist"'),
    (":oxc:swit:conn:add (@1),(@49)", '-222, "Data out of range;port 49 does not exist"'),
    (":oxc:swit:conn:add (@1),(@2)", '-222, "Data out of range;port 2 is on the other side"'),
    (":oxc:swit:conn:add (@1,2),(@25)", '-224, "Illegal parameter value;the two lists differ in length"'),
    (":oxc:swit:conn:only (@1,2),(@25,25)", '-224, "Illegal parameter value;port 25 is named twice"'),
    (":oxc:swit:conn:only (@1,1),(@25,26)", '-224, "Illegal parameter value;port 1 is named twice"'),
    (":oxc:swit:conn:add (@9),(@25)", '-221, "Settings conflict;port 9 carries another connection"'),
    (":oxc:swit:conn:add (@1),(@33)", '-221, "Settings conflict;port 33 carries another connection"'),
    (":oxc:swit:conn:sub (@9),(@25)", '-221, "Settings conflict;port 9 is not connected that way"'),
    (":oxc:swit:conn:add (@8),(@25)", '-221, "Settings conflict;port 8 is disabled"'),
    (":oxc:swit:port:stat? (@77)", '-222, "Data out of range;port 77 does not exist"'),
    (":oxc:swit:conn:port? (@1,2)", '-224, "Illegal parameter value;(@1,2)"'),
    (":pmon:pow?", '-109, "Missing parameter"'),
]


@pytest.mark.parametrize(("command", "error"), ERRORS)
def test_what_is_wrong_goes_to_the_queue_and_changes_nothing(client, command, error):
    client.send(":oxc:swit:conn:only (@9),(@33);:oxc:swit:port:dis (@8)")
    assert client.ask(f"{command};:syst:err?;:syst:err?;:oxc:swit:conn:stat?") == (
        f"{error};{NO_ERROR};(@9),(@33)"
    )


def test_a_bad_link_of_a_chain_does_not_break_it(client):
    assert client.ask("nonsense;*OPC?;:oxc:swit:size?") == "1;24,24"


def test_status(client):
    assert client.ask("*STB?") == "0"
    client.send("nonsense")
    assert client.ask("*STB?;*ESR?;*ESR?") == "4;32;0"
    client.send("*CLS")
    assert client.ask("*STB?;:syst:err?") == f"0;{NO_ERROR}"
    assert client.ask("*OPC;*ESR?") == "1"


def test_the_queue_overflows_at_its_end(client):
    for index in range(20):
        client.send(f"wrong{index}")
    texts = [client.ask(":syst:err?") for _ in range(17)]
    assert texts[0] == '-113, "Undefined header;wrong0"'
    assert texts[14:] == ['-113, "Undefined header;wrong14"', '-350, "Queue overflow"', NO_ERROR]


def test_all_errors_at_once(client):
    client.send("wrong")
    client.send(":pmon:pow?")
    assert client.ask(":syst:err:all?") == '-113, "Undefined header;wrong",-109, "Missing parameter"'
    assert client.ask(":syst:err:next?") == NO_ERROR


def test_headers_continue_the_path_of_the_one_before(client):
    assert client.ask(":oxc:swit:conn:add (@1),(@25);stat?;port? 1") == '(@1),(@25);"25"'
    assert client.ask(":oxc:swit:conn:stat?;*OPC?;stat?") == "(@1),(@25);1;(@1),(@25)"
    assert client.ask("oxc:swit:conn:stat?;syst:err?") == f"(@1),(@25);{NO_ERROR}"


def test_replies_on_separate_lines_where_asked_for(start_twin):
    client = start_twin(separate_lines="yes").scpi()
    client.send(":oxc:swit:size?;:syst:err?")
    assert [client.line(), client.line()] == ["8,8", NO_ERROR]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_either_line_ending(client, ending):
    assert client.ask(":oxc:swit:size?", ending) == "24,24"
    assert client.ask(ending + ":oxc:swit:size?", ending) == "24,24"


def test_add_on_an_occupied_port_where_it_replaces(start_twin):
    client = start_twin(when_occupied="replace").scpi()
    client.send(":oxc:swit:conn:only (@1,2),(@9,10)")
    client.send(":oxc:swit:conn:add (@1),(@10)")
    assert client.ask(":oxc:swit:conn:stat?;:syst:err?") == f"(@1),(@10);{NO_ERROR}"


def test_adding_what_is_there_is_no_conflict(client):
    client.send(":oxc:swit:conn:add (@1),(@25)")
    assert client.ask(":oxc:swit:conn:add (@1,2),(@25,26);stat?;:syst:err?") == f"(@1,2),(@25,26);{NO_ERROR}"


def test_two_clients_share_the_state_and_not_the_replies(start_twin):
    twin = start_twin()
    first, second = twin.scpi(), twin.scpi()
    first.send(":oxc:swit:conn:add (@1),(@9);*OPC?")
    assert first.line() == "1"
    assert second.ask(":oxc:swit:conn:stat?") == "(@1),(@9)"
    for index in range(50):
        first.send(f":oxc:swit:conn:port? {1 + index % 2}")
        second.send(":oxc:swit:size?")
    assert [first.line() for _ in range(50)] == ['"9"', '""'] * 25
    assert [second.line() for _ in range(50)] == ["8,8"] * 50


def test_an_endless_line_is_an_overrun(client):
    client.socket.sendall(b"x" * (1 << 17))
    client.send("")
    assert client.ask("*STB?") == "4"
    assert '-363, "Input buffer overrun"' in client.ask(":syst:err:all?")


# -- the grammar alone

KEYWORDS = [
    "SYSTem:ERRor[:NEXT]?",
    "OXC:SWITch:CONNect:ONLY",
    "OXC:SWITch:DISConnect:ALL",
    "OXC:SWITch:PORT:ENABle",
    "OXC:BOOT:MODE?",
    "PMONitor:POWer?",
    "SYSTem:COMMunicate:NETWork:ADDRess?",
]


@st.composite
def written_headers(draw):
    """Return a definition, and one of the ways in which a user may write it."""
    definition = draw(st.sampled_from(KEYWORDS))
    text = definition.replace("[:NEXT]", draw(st.sampled_from(["", ":NEXT"])))
    words = [
        draw(st.sampled_from([word, word.rstrip("abcdefghijklmnopqrstuvwxyz")]))
        for word in text.rstrip("?").split(":")
    ]
    cased = "".join(draw(st.sampled_from([c.lower(), c.upper()])) for c in ":".join(words))
    return definition, cased + "?" * text.endswith("?")


@pytest.mark.slow
def test_short_and_long_forms_in_any_case():
    seen = Counter()

    @settings(max_examples=100)
    @given(written_headers(), st.data())
    def check(written, data):
        definition, header = written
        assert compile_header(definition).fullmatch(header)
        position = data.draw(st.integers(0, len(header) - 1))
        mutilated = header[:position] + header[position + 1 :]
        full = definition.replace("[", "").replace("]", "").upper()
        seen["short" if len(header) < len(full) else "long"] += 1
        # Leaving out a letter is right only where it turns a keyword of one letter more than its
        # short form into that short form; our keywords have such a one in none of these places.
        accepted = compile_header(definition).fullmatch(mutilated)
        seen["mutilated"] += not accepted
        assert not accepted or any(_is_short_of(header, mutilated, word) for word in definition.split(":"))

    check()
    assert min(seen.values()) >= 20, seen
    assert len(seen) == 3


def _is_short_of(header, mutilated, word):
    letters = word.strip("[]?")
    short = letters.rstrip("abcdefghijklmnopqrstuvwxyz")
    return (
        len(letters) == len(short) + 1
        and letters.lower() in header.lower()
        and short.lower() in mutilated.lower()
    )


COMMANDS = st.sampled_from(
    ["*IDN?", ":oxc:swit:size?", ":oxc:swit:conn:stat?;:syst:err?", "nonsense", "", ":pmon:pow? (@1,2)"]
)


@pytest.mark.slow
def test_bytes_one_by_one_give_the_same_lines():
    seen = Counter()

    @settings(max_examples=100)
    @given(
        st.lists(st.tuples(COMMANDS, st.sampled_from(["\n", "\r\n"])), max_size=6),
        st.lists(st.integers(0, 60), max_size=6),
    )
    def check(lines, cuts):
        stream = "".join(command + ending for command, ending in lines).encode()
        edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
        one_by_one, in_pieces = LineReader(), LineReader()
        expected = [command for command, _ in lines]
        assert [line for byte in stream for line in one_by_one.feed(bytes([byte]))] == expected
        pieces = [stream[a:b] for a, b in pairwise(edges)]
        assert [line for piece in pieces for line in in_pieces.feed(piece)] == expected
        seen["cut inside"] += any(0 < edge < len(stream) for edge in edges)

    check()
    assert seen["cut inside"] >= 20


def test_byte_by_byte_over_the_wire(client):
    for byte in b":oxc:swit:conn:add (@1),(@25);*OPC?\r\n":
        client.socket.sendall(bytes([byte]))
    assert client.line() == "1"


@given(st.lists(st.integers(1, 4096), max_size=50))
def test_lists_are_read_as_they_are_written(ports):
    assert parse_port_list(format_ports(ports)) == ports


@given(st.text(max_size=60))
def test_no_line_is_too_strange_to_be_cut_into_units(line):
    for unit in split_units(line):
        assert unit.header.strip() == unit.header


@pytest.mark.parametrize("text", ["", "(1,2)", "(@1,,2)", "(@a)", "(@1", "(@1;2)", "(@-1)", "((@1))"])
def test_what_is_no_list_is_a_syntax_error(text):
    with pytest.raises(ScpiError, match=r"^-102"):
        parse_port_list(text)


def test_a_list_of_everything_is_too_much():
    with pytest.raises(ScpiError, match=r"^-223"):
        parse_port_list("(@1:999999999,1:999999999)")


def test_an_error_queue_of_one():
    queue = ErrorQueue(1)
    queue.push(ScpiError(-109))
    queue.push(ScpiError(-109))
    assert (len(queue), queue.pop(), queue.pop_all()) == (1, '-350, "Queue overflow"', NO_ERROR)

"""Drivers of laboratory instruments against their twins, over real sockets and PyVISA."""

from __future__ import annotations

import math
import socket
import subprocess
import sys
import threading
from contextlib import closing, suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest
from libraries import skip_without
from needs import needs

pyvisa = pytest.importorskip("pyvisa", reason="laboratory instruments are reached through PyVISA")
skip_without("pyvisa_py", reason="raw sockets need the pure-Python backend of PyVISA")

from lightning.errors import AddressError, MissingLibrary, OutOfRange
from lightning.kit.instruments import Instruments, open_bench, open_instrument
from lightning.kit.instruments import line as line_module
from lightning.kit.instruments.line import (
    InstrumentGone,
    InstrumentRefused,
    InstrumentSilent,
    SettingMismatch,
    UnreadableReply,
    WrongInstrument,
)
from lightning.kit.instruments.session import Session
from sim.twins.rfsoc.kit import make_kit

QUICK_S = 0.15
"""A timeout for those questions that run into it."""


def hurry(instrument):
    """Limit the wait of this connection, but not of the next."""
    instrument._session._line._timeout_s = QUICK_S


@pytest.fixture
def kit():
    one = make_kit({"noise": "off", "drift": "off", "crosstalk_db": "200"})
    yield one
    one.close()


@pytest.fixture
@needs("socket")
def bench(kit):
    with open_bench(kit.bench()) as instruments:
        yield instruments


def read(instrument):
    """Ask any of them one question."""
    for name in ("read_wavelength_nm", "read_power_w"):
        if hasattr(instrument, name):
            return getattr(instrument, name)()
    return instrument.read_voltage_v(1)


def heard(kit, role):
    """Return the lines that an instrument was sent."""
    entries = kit.instruments.transcripts[role].list_entries()
    return b"".join(entry.data for entry in entries if entry.direction == "in").decode().splitlines()


# -- what they do


def test_they_say_who_they_are(kit, bench):
    assert str(bench.laser.identity) == f"SANTEC TSL-770 {kit.identity}"
    assert bench.bias.identity.model == "N6700C"
    assert bench.meter.identity.make == "Thorlabs"


def test_the_laser_returns_when_the_light_has_followed(kit, bench):
    bench.laser.turn_off()
    assert not kit.state.snapshot.is_lit
    assert not bench.laser.is_on()
    assert bench.laser.read_output_dbm() == -99.0
    bench.laser.turn_on()
    assert kit.state.snapshot.is_lit
    bench.laser.set_power_dbm(7.25)
    assert kit.knobs["laser_dbm"] == 7.25
    assert bench.laser.read_power_setpoint_dbm() == bench.laser.read_output_dbm() == 7.25
    bench.laser.set_wavelength_nm(1550.1234)
    assert kit.knobs["wavelength_nm"] == bench.laser.read_wavelength_nm() == 1550.1234


def test_the_laser_is_switched_on_though_both_switches_are_off(kit, bench):
    kit.knobs["laser"], kit.knobs["shutter_open"] = "off", "off"
    bench.laser.turn_on()
    assert kit.state.snapshot.is_lit


def test_powers_are_in_dbm_though_somebody_chose_milliwatts(kit, bench):
    host, port = kit.bench()["laser"].split("::")[1:3]
    with socket.create_connection((host, int(port))) as somebody:
        somebody.sendall(b":POW:UNIT 1;*OPC?\r")
        assert somebody.recv(10)
    assert bench.laser.read_power_setpoint_dbm() == 10.0


def test_a_laser_behind_an_open_interlock_is_reported(kit, bench):
    kit.knobs["laser_dropped"] = "on"
    with pytest.raises(SettingMismatch, match=r"No07.*Inter lock.*Check the key, the interlock"):
        bench.laser.turn_on()


@pytest.mark.parametrize(
    ("stuck", "act", "words"),
    [
        ({"laser": False}, lambda laser: laser.turn_on(), "it reports that its output is off"),
        (
            {"shutter_open": True},
            lambda laser: laser.turn_off(),
            "the shutter was closed, but the laser reports that it is on",
        ),
        ({"laser_dbm": 1.0}, lambda laser: laser.set_power_dbm(5.0), "was set to 5 and reads 1"),
    ],
)
def test_a_laser_that_does_not_obey_is_reported(kit, bench, stuck, act, words):
    change = kit.state.change
    kit.state.change = lambda act: change(lambda one: replace(act(one), **stuck))
    with pytest.raises(SettingMismatch, match=words):
        act(bench.laser)


def test_a_bias_moves_its_modulator(kit, bench):
    assert (bench.bias.output_count, bench.bias.limit_v) == (4, 12.0)
    bench.bias.set_voltage_v(2, 4.321)
    assert kit.knobs["bias_v_1"] == bench.bias.read_voltage_v(2) == 4.321
    bench.bias.turn_off(2)
    assert (bench.bias.is_on(2), bench.bias.read_voltage_v(2), kit.knobs["bias_v_1"]) == (False, 0.0, 0.0)
    bench.bias.set_voltage_v(2, 2.0)
    assert bench.bias.read_voltage_v(2) == 0.0
    bench.bias.turn_on(2)
    assert kit.knobs["bias_v_1"] == 2.0


def test_the_meter_finds_the_peak_where_both_biases_stand_at_v_pi(bench):
    for output in (1, 2):
        bench.bias.set_voltage_v(output, 8.0)
    leak = 10**-2.7
    assert bench.meter.read_power_w() == pytest.approx(1e-5 * (1 + leak**2), rel=1e-7)
    assert bench.meter.read_power_dbm() == pytest.approx(-20.0, abs=1e-4)
    bench.laser.turn_off()
    assert bench.meter.read_power_w() == 0.0
    assert bench.meter.read_power_dbm() == -math.inf


def test_the_meter_is_given_wavelength_and_averages(kit, bench):
    bench.meter.set_wavelength_nm(1310.0)
    bench.meter.set_average_count(50)
    assert {"SENS:CORR:WAV 1310.000", "SENS:AVER:COUN 50"} < set(heard(kit, "meter"))


def test_the_meter_reads_watts_though_somebody_chose_dbm(kit, bench):
    host, port = kit.bench()["meter"].split("::")[1:3]
    with socket.create_connection((host, int(port))) as somebody:
        somebody.sendall(b"SENS:POW:UNIT DBM;*OPC?\n")
        assert somebody.recv(10)
    assert 0 < bench.meter.read_power_w() < 1e-3


# -- refusals


@pytest.mark.parametrize(
    "ask",
    [
        lambda bench: bench.laser.set_power_dbm(13.5),
        lambda bench: bench.laser.set_power_dbm(math.nan),
        lambda bench: bench.laser.set_wavelength_nm(1310),
        lambda bench: bench.bias.set_voltage_v(1, 12.1),
        lambda bench: bench.bias.set_voltage_v(1, -0.1),
        lambda bench: bench.bias.set_voltage_v(0, 1.0),
        lambda bench: bench.bias.turn_on(5),
        lambda bench: bench.meter.set_wavelength_nm(300),
        lambda bench: bench.meter.set_average_count(0),
    ],
)
def test_what_is_out_of_range_is_not_sent(kit, bench, ask):
    with pytest.raises(OutOfRange, match="nothing was sent"):
        ask(bench)
    lines = [line for role in kit.bench() for line in heard(kit, role)]
    assert {line for line in lines if "?" not in line} == {"*CLS"}
    assert kit.version == 0


@pytest.mark.socket
def test_an_error_in_the_queue_is_raised_with_its_text(kit):
    with closing(Session(kit.bench()["bias"], ("keysight",))) as session:
        with pytest.raises(
            InstrumentRefused, match=r"'VOLT 99,\(@1\)' was refused: -222 Data out of range;99"
        ):
            session.send_command("VOLT 99,(@1)")
        session.send_command("VOLT 1,(@1)")


@pytest.mark.socket
def test_errors_that_others_made_before_are_not_ours(kit):
    host, port = kit.bench()["bias"].split("::")[1:3]
    with socket.create_connection((host, int(port))) as somebody:
        somebody.sendall(b"NONSENSE;*OPC?\n")
        assert somebody.recv(10)
    with closing(open_instrument(kit.bench()["bias"], "bias")) as supply:
        supply.set_voltage_v(1, 3.5)


@pytest.mark.socket
def test_another_instrument_at_the_address_is_refused(kit):
    with pytest.raises(WrongInstrument, match=r"'Thorlabs,PM103E.*' answered, but a santec was expected"):
        open_instrument(kit.bench()["meter"], "laser")


@pytest.mark.socket
def test_an_unknown_role_is_refused(kit):
    with pytest.raises(AddressError, match='Ask for "laser", "bias" or "meter"'):
        open_instrument(kit.bench()["meter"], "oven")


def test_a_voltage_that_does_not_read_back_is_reported(kit, bench):
    """Another program holds the supply at its own voltage."""
    change = kit.state.change
    kit.state.change = lambda act: change(lambda one: act(one).with_modulator(0, bias_v=1.0))
    with pytest.raises(SettingMismatch, match="output 1 in V was set to 4 and reads 1"):
        bench.bias.set_voltage_v(1, 4.0)


@pytest.mark.socket
def test_a_laser_that_never_settles_is_reported(kit):
    asked = []
    with (
        closing(Session(kit.bench()["laser"], ("santec",), settle_s=0.05)) as session,
        pytest.raises(SettingMismatch, match=r"the power did not settle within 0.05 s"),
    ):
        session.wait_until(lambda: bool(asked.append(1)), "the power")
    assert len(asked) > 1


# -- broken sessions: every instrument, every way


@pytest.fixture(params=["laser", "bias", "meter"])
@needs("socket")
def broken(request, kit):
    """Yield an instrument that is about to break, its role, and the faults of its line."""
    with closing(open_instrument(kit.bench()[request.param], request.param, timeout_s=5.0)) as instrument:
        read(instrument)
        yield instrument, request.param, kit.instruments.faults[request.param]


def test_silence_ends_at_the_timeout_and_the_next_question_is_answered(broken):
    instrument, _, faults = broken
    faults.is_half_open = True
    hurry(instrument)
    with pytest.raises(InstrumentSilent, match=r"no answer to '.*' within 0.15 s") as caught:
        read(instrument)
    assert isinstance(caught.value, TimeoutError)
    faults.is_half_open = False
    assert read(instrument) is not None


def test_a_late_answer_meets_nobody(broken):
    instrument, _, faults = broken
    right = read(instrument)
    faults.reply_delay_s = 2 * QUICK_S
    hurry(instrument)
    with pytest.raises(InstrumentSilent):
        read(instrument)
    faults.reply_delay_s = 0.0
    assert read(instrument) == right


def test_garbage_is_no_number(broken):
    instrument, _, faults = broken
    right = read(instrument)
    faults.garbage_replies = 1
    with pytest.raises(UnreadableReply, match="connection was closed"):
        read(instrument)
    assert faults.fire_counts["garbage"] == 1
    assert read(instrument) == right


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_half_an_answer_and_then_a_disconnect_is_a_lost_connection(broken, kept):
    instrument, _, faults = broken
    right = read(instrument)
    faults.close_after_bytes = kept
    with pytest.raises(InstrumentGone) as caught:
        read(instrument)
    assert isinstance(caught.value, ConnectionError)
    assert read(instrument) == right


def test_a_command_that_breaks_the_line_is_a_lost_connection(broken):
    instrument, role, faults = broken
    act = {
        "laser": lambda: instrument.set_power_dbm(3.0),
        "bias": lambda: instrument.set_voltage_v(1, 3.0),
        "meter": lambda: instrument.set_average_count(3),
    }[role]
    faults.close_after_commands = 2
    with pytest.raises(InstrumentGone):
        act()
    act()


def test_an_instrument_that_is_gone_is_named_and_found_again_when_it_is_back(broken, kit):
    instrument, role, _ = broken
    kit.instruments.unplug(role)
    for _ in range(2):
        with pytest.raises(InstrumentGone, match=rf"{kit.bench()[role]}.*Check power, network and address"):
            read(instrument)
    kit.instruments.plug_in(role)
    assert read(instrument) is not None


@pytest.mark.socket
def test_bytes_that_nobody_asked_for_are_not_taken_for_an_answer():
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        session = Session(f"TCPIP::127.0.0.1::{server.getsockname()[1]}::SOCKET", ("x",), timeout_s=20.0)
        talking = threading.Thread(target=_talkative, args=(server,))
        talking.start()
        with closing(session):
            assert session.ask("ONE?") == "1"
            assert session.ask("EXTRA?") == "1"
            with pytest.raises(UnreadableReply, match="unreadable or unsolicited bytes b'more"):
                session.ask("ONE?")
        talking.join(60)


def _talkative(server):
    """Answer 1 to everything, and more than that to `EXTRA?`, in one piece."""
    connection, _ = server.accept()
    with connection, connection.makefile("rb") as lines:
        for line in lines:
            if line.startswith(b"*IDN?"):
                connection.sendall(b"x,x,x,x\n")
            elif line.startswith(b"EXTRA?"):
                connection.sendall(b"1\nmore\n")
            elif b"?" in line:
                connection.sendall(b"1\n")


@pytest.mark.socket
def test_an_answer_in_pieces_is_one_answer():
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        session = Session(f"TCPIP::127.0.0.1::{server.getsockname()[1]}::SOCKET", ("x",), timeout_s=20.0)

        def answer():
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as lines:
                for line in lines:
                    for byte in {b"*IDN?": b"x,x,x,x\r\n", b"V?": b"\r\n+1.5\r\n"}.get(line.strip(), b""):
                        connection.sendall(bytes([byte]))

        talking = threading.Thread(target=answer)
        talking.start()
        with closing(session):
            assert [session.ask_number("V?") for _ in range(5)] == [1.5] * 5
        talking.join(60)


@pytest.mark.socket
def test_an_answer_without_end_is_cut_off():
    """Nor does it fill the memory."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        session = Session(f"TCPIP::127.0.0.1::{server.getsockname()[1]}::SOCKET", ("x",), timeout_s=5.0)

        def flood():
            connection, _ = server.accept()
            with connection, suppress(ConnectionError):
                connection.recv(100)
                for _ in range(1000):
                    connection.sendall(b"x," * 4096)

        talking = threading.Thread(target=flood)
        talking.start()
        with closing(session), pytest.raises(UnreadableReply):
            session.open()
        talking.join(60)
        assert not talking.is_alive()


@pytest.mark.socket
def test_an_answer_that_is_no_text_is_unreadable():
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        session = Session(f"TCPIP::127.0.0.1::{server.getsockname()[1]}::SOCKET", ("x",), timeout_s=5.0)

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"\xff\xfe,x\n")
                connection.recv(100)

        talking = threading.Thread(target=answer)
        talking.start()
        with closing(session), pytest.raises(UnreadableReply, match="unreadable or unsolicited bytes"):
            session.open()
        talking.join(60)
        assert not talking.is_alive()


@pytest.mark.parametrize("reply", ["", "nan", "inf", "9.91E+37", "1.5V"])
def test_what_is_no_number(reply):
    with (
        closing(Session("TCPIP::x::1::SOCKET", ("x",), connect=lambda *_: _Said(reply))) as session,
        pytest.raises(UnreadableReply, match="is not a number"),
    ):
        session.ask_number("POW?")


@pytest.mark.parametrize("reply", ["", "2", "YES"])
def test_what_is_no_truth(reply):
    with (
        closing(Session("TCPIP::x::1::SOCKET", ("x",), connect=lambda *_: _Said(reply))) as session,
        pytest.raises(UnreadableReply, match="is not 1 or 0"),
    ):
        session.ask_bool("OUTP?")


@pytest.mark.parametrize("reply", ["", "fine", "1.5"])
def test_what_is_no_entry_of_an_error_queue(reply):
    with (
        closing(Session("TCPIP::x::1::SOCKET", ("x",), connect=lambda *_: _Said(reply))) as session,
        pytest.raises(UnreadableReply, match="an error number and text"),
    ):
        session.send_command("*RST")


def test_an_error_queue_that_never_empties_ends_the_command():
    with (
        closing(Session("TCPIP::x::1::SOCKET", ("x",), connect=lambda *_: _Said('-1,"again"'))) as session,
        pytest.raises(InstrumentRefused) as caught,
    ):
        session.send_command("*RST")
    assert str(caught.value).count("again") == 32


class _Said:
    """A line that answers everything alike."""

    def __init__(self, reply):
        self._reply = reply

    def write(self, text):
        pass

    def query(self, text):
        return "x,x,x,x" if text == "*IDN?" else self._reply

    def close(self):
        pass


# -- connecting


@pytest.mark.socket
def test_nobody_at_the_address_is_reported_at_once():
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        resource = f"TCPIP::127.0.0.1::{taken.getsockname()[1]}::SOCKET"
        with pytest.raises(InstrumentGone, match="Check power, network and address"):
            open_instrument(resource, "laser")


@pytest.mark.process
@pytest.mark.parametrize("resource", ["nonsense", "TCPIP::::SOCKET"])
def test_what_is_no_resource_is_an_error_of_the_address(resource):
    with pytest.raises(AddressError, match="is not a VISA resource"):
        open_instrument(resource, "laser")


@pytest.mark.socket
def test_a_bench_that_lacks_one_closes_those_it_had_opened(kit):
    resources = kit.bench()
    kit.instruments.unplug("meter")
    with pytest.raises(InstrumentGone):
        open_bench(resources)
    kit.instruments.plug_in("meter")
    with open_bench({"laser": resources["laser"]}) as instruments:
        assert instruments.bias is instruments.meter is None


def test_an_empty_bench_is_one():
    with open_bench({}) as instruments:
        assert instruments == Instruments()


def test_two_threads_get_their_own_answers(kit, bench):
    wrong = []

    def ask(output, volts):
        wrong.extend(bench.bias.read_voltage_v(output) != volts for _ in range(150))

    bench.bias.set_voltage_v(1, 1.0)
    bench.bias.set_voltage_v(2, 2.0)
    threads = [threading.Thread(target=ask, args=pair) for pair in ((1, 1.0), (2, 2.0))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(wrong) == 300
    assert not any(wrong)


def test_without_pyvisa_the_hint_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyvisa", None)
    with pytest.raises(MissingLibrary, match=r"install the extra \[kit\] of lightbed"):
        open_instrument("TCPIP::127.0.0.1::1::SOCKET", "laser")


@pytest.mark.process
def test_importing_them_does_not_import_pyvisa():
    code = "import sys, lightning.kit.instruments; print('pyvisa' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "False"


# -- buses that frame messages themselves


class _Bus:
    """A resource as PyVISA gives it for USB and GPIB, as far as we use it."""

    def __init__(self, replies):
        self.replies = replies
        self.written = []
        self.write_termination = None

    def write(self, text):
        self._say(text)

    def query(self, text):
        return self._say(text)

    def close(self):
        self.written.append("closed")

    def _say(self, text):
        self.written.append(text + self.write_termination)
        reply = self.replies[text]
        if isinstance(reply, Exception):
            raise reply
        return reply


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (pyvisa.errors.VisaIOError(pyvisa.constants.StatusCode.error_timeout), InstrumentSilent),
        (pyvisa.errors.VisaIOError(pyvisa.constants.StatusCode.error_connection_lost), InstrumentGone),
        (OSError("no such device"), InstrumentGone),
        (UnicodeDecodeError("ascii", b"\xff", 0, 1, "no"), UnreadableReply),
    ],
)
def test_failures_of_a_bus_are_reported_in_the_same_words(monkeypatch, failure, kind):
    bus = _Bus({"*IDN?": "Santec,TSL-770,1,2\n", "*CLS": None, ":WAV?": failure})
    monkeypatch.setattr(line_module, "_open_resource", lambda *_, **__: bus)
    laser = open_instrument("USB0::1::2::INSTR", "laser")
    with pytest.raises(kind):
        laser.read_wavelength_nm()
    bus.replies[":WAV?"] = "+1550.0\r\n"
    assert laser.read_wavelength_nm() == 1550.0
    assert bus.written[:4] == ["*IDN?\r\n", "*CLS\r\n", ":WAV?\r\n", "closed"]


@pytest.mark.parametrize(
    ("reported", "library"),
    [
        ("Please install PyUSB to use this resource type.\nNo module named 'usb'", "pyusb"),
        ("Please install linux-gpib (Linux) or gpib-ctypes (all).\nNo module named 'gpib'", "gpib-ctypes"),
    ],
)
def test_a_bus_whose_library_is_missing_is_reported_with_the_hint(monkeypatch, reported, library):
    def lacking(*_, **__):
        raise ValueError(reported)

    monkeypatch.setattr(line_module, "_open_manager", lambda backend: SimpleNamespace(open_resource=lacking))
    with pytest.raises(
        MissingLibrary, match=rf"{library} is needed to reach USB0::1::2::3::INSTR.*pip install {library}"
    ):
        open_instrument("USB0::1::2::3::INSTR", "meter")

"""The simulated laboratory instruments on their sockets, asked by a client that knows nothing but lines."""

from __future__ import annotations

import math
import socket
import threading

import pytest

from sim.twins.rfsoc.kit import KitParameters
from sim.twins.rfsoc.kit.bench import Bench
from sim.twins.rfsoc.kit.bench.instrument import SettlingKnobs
from sim.twins.rfsoc.kit.knobs import set_knobs
from sim.twins.rfsoc.kit.state import KitState

pytestmark = pytest.mark.socket

PATIENCE_S = 60.0
NO_ERROR = '0,"No error"'


class Client:
    """One connection to one instrument."""

    def __init__(self, resource: str) -> None:
        host, port = resource.split("::")[1:3]
        self.socket = socket.create_connection((host, int(port)), PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lines = self.socket.makefile("rb")
        assert self.ask("*IDN?")  # now it is served, and not only in the kernel's queue

    def tell(self, line: str, end: str = "\n") -> None:
        self.socket.sendall((line + end).encode())

    def ask(self, line: str, end: str = "\n") -> str:
        self.tell(line, end)
        return self._lines.readline().decode().strip()

    def settle(self) -> int:
        """Ask until the operation is complete; gives how often it was not."""
        for asked in range(100_000):
            if self.ask("*OPC?") == "1":
                return asked
        raise AssertionError("never settled")

    def close(self) -> None:
        self._lines.close()
        self.socket.close()


class Table:
    """A bench, its state, and clients by role."""

    def __init__(self, **settings) -> None:
        self.state = KitState(set_knobs(KitParameters(seed=4), {"noise": "off", **settings}))
        self.bench = Bench(self.state, "sim-kit-0001")
        self.client_count: list[Client] = []

    def client(self, role: str) -> Client:
        self.client_count.append(Client(self.bench.get_resources()[role]))
        return self.client_count[-1]

    def close(self) -> None:
        for client in self.client_count:
            client.close()
        self.bench.close()


@pytest.fixture
def table():
    made = []

    def make(**settings) -> Table:
        made.append(Table(**settings))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize(
    ("role", "identity"),
    [
        ("laser", "SANTEC,TSL-770,sim-kit-0001,0001.000.0001"),
        ("bias", "Keysight Technologies,N6700C,sim-kit-0001,E.02.07.3067"),
        ("meter", "Thorlabs,PM103E,sim-kit-0001,1.2.0"),
    ],
)
def test_who_they_are_and_what_they_make_of_nonsense(table, role, identity):
    client = table().client(role)
    assert client.ask("*IDN?") == identity
    assert client.ask("SYST:ERR?") == NO_ERROR
    client.tell("MAKE:COFFEE 2")
    assert client.ask("SYST:ERR?") == '-113,"Undefined header;MAKE:COFFEE"'
    client.tell("MAKE:TEA;*CLS")
    assert client.ask("SYSTem:ERRor:NEXT?") == NO_ERROR


# -- laser


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
def test_the_laser_takes_any_line_end(table, end):
    assert table().client("laser").ask(":WAV?", end) == "+1550.0000"


def test_the_laser_goes_dark_when_it_has_settled_and_not_before(table):
    one = table()
    laser = one.client("laser")
    laser.tell(":POW:STAT 0")
    assert laser.ask(":POW:STAT?") == "0"
    assert laser.settle() > 0
    assert not one.state.snapshot.is_lit
    assert laser.ask(":POW:ACT?") == "-99.0000"
    laser.tell(":POW:STAT 1")
    laser.settle()
    assert one.state.snapshot.is_lit


def test_settings_that_follow_one_another_settle_together():
    """The light follows the last of them, by the clock of whoever schedules."""
    state, calls = KitState(KitParameters()), []
    settling = SettlingKnobs(state, lambda seconds, act: calls.append((seconds, act)), 0.02)
    settling.set_knobs(laser=False)
    settling.set_knobs(laser_dbm=3.0)
    assert [seconds for seconds, _ in calls] == [0.02, 0.02]
    calls[0][1]()
    assert not settling.is_settled
    assert state.snapshot.is_lit
    assert settling.get_setting("laser_dbm") == 3.0
    calls[1][1]()
    assert settling.is_settled
    assert not state.snapshot.is_lit
    assert state.snapshot.parameters.laser_dbm == 3.0
    assert state.snapshot.version == 1


def test_the_shutter_is_closed_by_one_and_opened_by_zero(table):
    one = table()
    laser = one.client("laser")
    laser.tell(":POW:SHUT 1")
    laser.settle()
    assert (laser.ask(":POW:SHUT?"), laser.ask(":POW:STAT?"), one.state.snapshot.is_lit) == ("1", "1", False)
    laser.tell(":POW:SHUT 0")
    laser.settle()
    assert one.state.snapshot.is_lit


def test_power_in_dbm_and_in_mw(table):
    one = table()
    laser = one.client("laser")
    assert laser.ask(":POW?") == "+10.0000"
    laser.tell(":POW:UNIT 1;:POW 5")
    assert (laser.ask(":POW:UNIT?"), laser.ask(":POW?")) == ("1", "+5.0000")
    laser.settle()
    assert one.state.snapshot.parameters.laser_dbm == pytest.approx(10 * math.log10(5))
    laser.tell(":POW:UNIT 0")
    assert laser.ask(":POW?") == "+6.9897"


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (":POW 13.01", '-222,"Data out of range;13.01"'),
        (":POW -16", '-222,"Data out of range;-16"'),
        (":WAV 1300", '-222,"Data out of range;1300"'),
        (":WAV 1550nm", '-224,"Illegal parameter value;1550nm"'),
        (":WAV nan", '-224,"Illegal parameter value;nan"'),
        (":WAV", '-109,"Missing parameter"'),
        (":WAV 1550,1551", '-108,"Parameter not allowed"'),
        (":POW:STAT 2", '-224,"Illegal parameter value;2"'),
    ],
)
def test_what_the_laser_refuses_changes_nothing(table, command, error):
    one = table()
    laser = one.client("laser")
    laser.tell(command)
    assert laser.ask(":SYST:ERR?") == error
    assert laser.ask("*OPC?") == "1"
    assert one.state.snapshot.version == 0


def test_a_dropped_laser_says_what_it_was_told_and_gives_no_light(table):
    laser = table(laser_dropped=True).client("laser")
    assert (laser.ask(":POW:STAT?"), laser.ask(":POW:ACT?")) == ("1", "-99.0000")
    assert laser.ask(":SYST:ALER?") == "No07.,Inter lock detection"


def test_a_laser_in_order_has_no_alerts_and_tells_its_range(table):
    laser = table().client("laser")
    assert laser.ask(":SYST:ALER?") == "No alerts."
    assert (laser.ask(":WAV:MIN?"), laser.ask(":WAV:MAX?")) == ("+1480.0000", "+1640.0000")


def test_an_operator_s_knob_shows_on_the_instrument(table):
    one = table()
    laser = one.client("laser")
    one.state.change(lambda kit: set_knobs(kit, {"laser_dbm": 2.5, "laser": False}))
    assert (laser.ask(":POW?"), laser.ask(":POW:STAT?")) == ("+2.5000", "0")


# -- bias supply


def test_lists_of_channels_set_and_read(table):
    one = table()
    supply = one.client("bias")
    supply.tell("VOLT 5.1,(@1,3:4)")
    assert supply.ask("VOLT? (@1:4)") == "+5.100000E+00,+3.000000E+00,+5.100000E+00,+5.100000E+00"
    assert [each.bias_v for each in one.state.snapshot.parameters.modulators] == [5.1, 3.0, 5.1, 5.1]
    assert supply.ask("SYST:CHAN:COUN?") == "4"


def test_voltages_come_in_steps_of_a_millivolt(table):
    supply = table().client("bias")
    supply.tell("SOURce:VOLTage:LEVel:IMMediate:AMPLitude 4.12345, (@2)")
    assert float(supply.ask("MEAS:VOLT? (@2)")) == 4.123


def test_an_output_that_is_off_gives_nothing_and_remembers(table):
    one = table()
    supply = one.client("bias")
    supply.tell("OUTP OFF,(@1:2)")
    assert supply.ask("OUTP? (@1:4)") == "0,0,1,1"
    assert [float(text) for text in supply.ask("MEAS:VOLT? (@1,3)").split(",")] == [0.0, 3.0]
    supply.tell("VOLT 7,(@1)")
    assert (float(supply.ask("VOLT? (@1)")), float(supply.ask("MEAS:VOLT? (@1)"))) == (7.0, 0.0)
    supply.tell("OUTP 1,(@1:2);OUTP ON,(@3)")
    assert supply.ask("*OPC?") == "1"
    assert [each.bias_v for each in one.state.snapshot.parameters.modulators] == [7.0, 3.0, 3.0, 3.0]


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("VOLT 20.5,(@1)", "-222"),
        ("VOLT -1,(@1)", "-222"),
        ("VOLT 1,(@5)", "-222"),
        ("VOLT 1,(@0)", "-222"),
        ("VOLT 1,1", "-224"),
        ("VOLT 1", "-109"),
        ("VOLT? (@1", "-224"),
        ("OUTP MAYBE,(@1)", "-224"),
    ],
)
def test_what_the_supply_refuses_changes_nothing(table, command, error):
    one = table()
    supply = one.client("bias")
    supply.tell(command)
    assert supply.ask("SYST:ERR?").split(",")[0] == error
    assert one.state.snapshot.version == 0


# -- power meter


def test_the_meter_reads_a_hundredth_of_the_light_that_the_biases_let_through(table):
    one = table(crosstalk_db=200)
    one.state.change(lambda kit: kit.with_modulator(0, bias_v=8.0).with_modulator(1, bias_v=8.0))
    meter = one.client("meter")
    leak = 10**-2.7
    assert float(meter.ask("MEAS:POW?")) == pytest.approx(1e-5 * (1 + leak**2), rel=1e-7)
    meter.tell("SENS:POW:UNIT DBM")
    assert float(meter.ask("READ?")) == pytest.approx(-20.0, abs=1e-4)


def test_a_meter_told_another_wavelength_reads_another_power(table):
    meter = table().client("meter")
    right = float(meter.ask("MEAS:POW?"))
    meter.tell("SENS:CORR:WAV 1310")
    assert float(meter.ask("SENS:CORR:WAV?")) == 1310.0
    assert float(meter.ask("MEAS:POW?")) == pytest.approx(right * 1550 / 1310, rel=1e-7)


def test_the_dark_meter_reads_noise_and_less_of_it_in_the_mean(table):
    one = table(noise="on", laser=False)
    meter = one.client("meter")
    single = [float(meter.ask("MEAS:POW?")) for _ in range(400)]
    meter.tell("SENS:AVER:COUN 100")
    assert meter.ask("SENS:AVER?") == "100"
    mean = [float(meter.ask("MEAS:POW?")) for _ in range(400)]
    deviation = [math.sqrt(sum(x * x for x in readings) / 400) for readings in (single, mean)]
    assert deviation[0] == pytest.approx(20e-12, rel=0.18)  # 5 standard errors of 400
    assert deviation[1] == pytest.approx(2e-12, rel=0.18)
    meter.tell("SENS:POW:UNIT DBM")
    assert "9.91000000E+37" in {meter.ask("MEAS:POW?") for _ in range(60)}


@pytest.mark.parametrize("command", ["SENS:CORR:WAV 500", "SENS:AVER 0", "SENS:POW:UNIT HP", "SENS:AVER"])
def test_what_the_meter_refuses(table, command):
    meter = table().client("meter")
    meter.tell(command)
    assert meter.ask("SYST:ERR?") != NO_ERROR


# -- the bench


def test_addresses_stay_while_it_serves_and_nothing_is_left_when_it_is_closed(table):
    one = table()
    before = threading.active_count()
    resources = one.bench.get_resources()
    assert one.bench.get_resources() == resources
    assert threading.active_count() == before + 1
    client = one.client("meter")
    one.bench.close()
    assert threading.active_count() == before
    assert client.socket.recv(1) == b""
    one.bench.close()


def test_a_bench_serves_again_after_it_was_closed(table):
    one = table()
    one.client("laser")
    one.bench.close()
    assert one.client("laser").ask(":WAV?") == "+1550.0000"


def test_several_clients_share_an_instrument(table):
    one = table()
    first, second = one.client("bias"), one.client("bias")
    first.tell("VOLT 4,(@1);VOLT 99,(@1)")
    assert float(first.ask("VOLT? (@1)")) == 4.0
    assert float(second.ask("VOLT? (@1)")) == 4.0
    assert second.ask("SYST:ERR?") == '-222,"Data out of range;99"'


def test_an_unplugged_instrument_refuses_and_comes_back_at_the_same_address(table):
    one = table()
    client = one.client("meter")
    one.bench.unplug("meter")
    assert client.socket.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        one.client("meter")
    assert one.client("bias").ask("*OPC?") == "1"
    one.bench.plug_in("meter")
    assert one.client("meter").ask("*OPC?") == "1"


def test_what_was_said_is_on_record(table):
    one = table()
    one.client("laser").ask(":WAV?")
    entries = [(entry.direction, entry.data) for entry in one.bench.transcripts["laser"].list_entries()]
    assert ("in", b":WAV?\n") in entries
    assert ("out", b"+1550.0000\r\n") in entries

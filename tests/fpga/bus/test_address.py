"""Buses by their addresses."""

import sys

import pytest

import fpga
from fpga.bus import BusUnavailable, SimulatedBus, make_simulated_bus, open_bus
from fpga.count_action import CountActionError

STREAMER = """
module streamer {
  counts:  { sum DAC[i].valid (i = 1 to num_DACs) }
  targets: { num_DACs }
  actions: { stream DAC[i].data (i = 1 to num_DACs) }
};
"""


@pytest.mark.slow
def test_a_representation_needs_nothing_but_numpy(demo, tmp_path, scenario, monkeypatch):
    for name in ("lark", "numba"):
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "demo.json").write_text(demo.to_json())
    bus = open_bus(f"fastsim://{tmp_path / 'demo.json'}?engine=reference")
    assert isinstance(bus, SimulatedBus)
    assert scenario.tell(bus, demo)["sums of three"]["adder.total"] == [[6], [15], [24]]


@pytest.mark.long
def test_a_text_with_parameters(tmp_path):
    pytest.importorskip("lark", reason="needs lark: pip install 'lightbed[fpga]'")
    (tmp_path / "streamer.ca").write_text(STREAMER)
    bus = open_bus(f"fastsim://{tmp_path / 'streamer.ca'}?engine=reference&num_DACs=3")
    driver = fpga.Datapath(bus)
    driver.load(fpga.Program(bus.datapath))
    (came,) = driver.run([[1, 2, 3], [4, 5, 6]]).values()
    assert came.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_relative_paths(tmp_path, demo, monkeypatch):
    (tmp_path / "demo.json").write_text(demo.to_json())
    monkeypatch.chdir(tmp_path)
    assert open_bus("fastsim://demo.json?engine=reference").datapath == demo


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("demo.json", "the scheme must be one of fastsim://, pynq://, verilator://"),
        ("http://demo.json", "the scheme must be one of"),
        ("fastsim://demo.json?engine=quick", r"engine=quick: choose fast or reference\."),
        ("fastsim://demo.json?n=4", r"demo\.json is already elaborated: its parameters are fixed\. Set"),
        ("fastsim://demo.ca?n=four", r"'fastsim://demo\.ca\?n=four': parameters must be integers, as in"),
        ("fastsim://none.json", "not a datapath"),
        ("pynq://board", "pynq://0xBASE or pynq://HOST"),
        ("pynq://board/base", "pynq://0xBASE or pynq://HOST"),
        ("pynq://board:port/0xA0000000", "pynq://0xBASE or pynq://HOST"),
    ],
)
def test_addresses_that_are_none(tmp_path, demo, monkeypatch, address, message):
    (tmp_path / "demo.json").write_text(demo.to_json())
    (tmp_path / "none.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        open_bus(address)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(OSError, match=r"absent\.json"):
        open_bus(f"fastsim://{tmp_path}/absent.json")
    with pytest.raises(CountActionError, match=r"absent\.ca"):
        open_bus(f"fastsim://{tmp_path}/absent.ca")


def test_without_numba_the_hint_is_given(demo, monkeypatch):
    for name in ("numba", "fpga.count_action.simulate.compiled.native"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BusUnavailable, match=r"install the extra \[fpga\] of lightbed.*engine=reference"):
        make_simulated_bus(demo)


@pytest.mark.parametrize("address", ["pynq://0xA0000000", "pynq://board:1234/0xA0000000"])
def test_without_pynq_the_hint_is_given(monkeypatch, address):
    monkeypatch.setitem(sys.modules, "pynq", None)
    with pytest.raises(BusUnavailable, match=r"install the extra \[pynq\] of lightbed"):
        open_bus(address)

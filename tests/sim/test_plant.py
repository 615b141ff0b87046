"""Light goes from laser to receiver along fibres and cross-connects; renderers hear of every change once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.models.light import Attenuator
from sim.twins.fibre import FibreError
from sim.twins.plant import Plant, make_plant_verbs
from sim.twins.wire.control import answer_request


def wiring(hosts="ab", nics=2, loss_db=0.3, **link):
    """Transmitter k ends in input k+1, receiver k hangs on output 101+k."""
    rows, k = [], 0
    for host in hosts:
        ends = []
        for number in range(1, nics + 1):
            k += 1
            ends.append(
                {
                    "name": f"nic{number}",
                    "transmit": {"switch": "ocs1", "port": k, "loss_db": loss_db},
                    "receive": {"switch": "ocs1", "port": 100 + k},
                }
            )
        rows.append({"name": host, "nics": ends})
    return {"link": link, "switches": [{"name": "ocs1", "insertion_loss_db": 1.2}], "hosts": rows}


class Recorder:
    def __init__(self):
        self.calls = []

    def render(self, before, after):
        self.calls.append((before, after))


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def plant(recorder):
    return Plant(wiring(), [recorder])


def test_the_renderer_gets_complete_maps_once_per_change(plant, recorder):
    plant.update_switch("ocs1", {1: 103})
    plant.update_switch("ocs1", {1: 103})
    plant.update_switch("ocs1", {1: 103, 4: 101})
    plant.update_switch("ocs1", {})
    first, both = {"b/nic1": "a/nic1"}, {"b/nic1": "a/nic1", "a/nic1": "b/nic2"}
    assert recorder.calls == [({}, first), (first, both), (both, {})]


def test_a_failing_renderer_is_told_the_same_change_again():
    class Fails(Recorder):
        def render(self, before, after):
            super().render(before, after)
            if len(self.calls) == 1:
                raise RuntimeError("tc")

    renderer = Fails()
    plant = Plant(wiring(), [renderer])
    with pytest.raises(RuntimeError, match="tc"):
        plant.update_switch("ocs1", {1: 103})
    plant.update_switch("ocs1", {1: 103})
    assert renderer.calls == [({}, {"b/nic1": "a/nic1"})] * 2


def test_power_by_hand(plant):
    plant.update_switch("ocs1", {1: 103})
    assert plant.read_input_power_dbm("ocs1", 1) == pytest.approx(-0.3)
    assert plant.read_output_power_dbm("ocs1", 103) == pytest.approx(-1.5)
    (path,) = plant.list_light_paths()
    assert (path.transmitter, path.receiver, path.input_port, path.output_port) == (
        "a/nic1",
        "b/nic1",
        1,
        103,
    )
    assert (path.power_dbm, path.loss_db, path.is_received) == (pytest.approx(-1.8), pytest.approx(1.8), True)


def test_dark_places_read_the_floor(plant):
    plant.update_switch("ocs1", {1: 103})
    assert plant.read_input_power_dbm("ocs1", 50) == -60.0
    assert plant.read_output_power_dbm("ocs1", 101) == -60.0
    assert plant.read_output_power_dbm("ocs2", 101) == -60.0


def test_attenuators_take_light_away(plant):
    plant.update_switch("ocs1", {1: 103}, {103: Attenuator(loss_db=2.0)})
    assert plant.read_output_power_dbm("ocs1", 103) == pytest.approx(-3.5)
    plant.update_switch("ocs1", {1: 103}, {103: Attenuator(ceiling_dbm=-10.0)})
    assert plant.read_output_power_dbm("ocs1", 103) == pytest.approx(-10.0)


def test_too_little_light_is_no_carrier(recorder):
    plant = Plant(wiring(receive_floor_dbm=-10.0), [recorder])
    plant.update_switch("ocs1", {1: 103})
    plant.set_extra_loss("a/nic1:transmit", 8.3)  # -1.8 - 8.3 = -10.1
    assert recorder.calls[-1] == ({"b/nic1": "a/nic1"}, {})
    assert not plant.list_light_paths()[0].is_received
    plant.set_extra_loss("a/nic1:transmit", 8.1)
    assert recorder.calls[-1] == ({}, {"b/nic1": "a/nic1"})


FAULTS = {
    "cut at the transmitter": (
        lambda p: p.cut_fibre("a/nic1:transmit"),
        lambda p: p.splice_fibre("a/nic1:transmit"),
        -60.0,
    ),
    "cut at the receiver": (
        lambda p: p.cut_fibre("b/nic1:receive"),
        lambda p: p.splice_fibre("b/nic1:receive"),
        -60.0,
    ),
    "laser off": (
        lambda p: p.set_laser("a/nic1", is_on=False),
        lambda p: p.set_laser("a/nic1", is_on=True),
        -60.0,
    ),
    "dirt": (
        lambda p: p.set_extra_loss("b/nic1:receive", 3.0),
        lambda p: p.set_extra_loss("b/nic1:receive", 0.0),
        -4.8,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_come_and_go(plant, name):
    fault, clear, power_dbm = FAULTS[name]
    clean = plant.list_faults()
    plant.update_switch("ocs1", {1: 103})
    fault(plant)
    assert plant.list_faults() != clean
    assert plant.list_light_paths()[0].power_dbm == pytest.approx(power_dbm)
    clear(plant)
    assert plant.list_faults() == clean
    assert plant.list_light_paths()[0].power_dbm == pytest.approx(-1.8)


def test_where_a_fault_shows_on_the_monitors(plant):
    plant.update_switch("ocs1", {1: 103})
    plant.cut_fibre("b/nic1:receive")
    assert plant.read_output_power_dbm("ocs1", 103) == pytest.approx(-1.5)  # behind the monitor
    plant.cut_fibre("a/nic1:transmit")
    assert plant.read_output_power_dbm("ocs1", 103) == -60.0
    assert plant.read_input_power_dbm("ocs1", 1) == -60.0


def test_swapped_fibres_of_one_host_lead_to_the_other_nic(plant, recorder):
    plant.update_switch("ocs1", {1: 103, 2: 104})
    straight = {"b/nic1": "a/nic1", "b/nic2": "a/nic2"}
    plant.swap_fibres("a/nic1:transmit", "a/nic2:transmit")
    crossed = {"b/nic1": "a/nic2", "b/nic2": "a/nic1"}
    assert recorder.calls[-1] == (straight, crossed)
    plant.unswap_fibres("a/nic2:transmit")
    assert recorder.calls[-1] == (crossed, straight)
    plant.swap_fibres("b/nic1:receive", "b/nic2:receive")
    assert recorder.calls[-1] == (straight, crossed)
    plant.unswap_fibres()
    assert recorder.calls[-1] == (crossed, straight)


def test_what_cannot_be(plant):
    for fault in (
        lambda: plant.cut_fibre("a/nic9:transmit"),
        lambda: plant.splice_fibre("nonsense"),
        lambda: plant.set_laser("z/nic1", is_on=False),
        lambda: plant.swap_fibres("a/nic1:transmit", "a/nic1:receive"),
        lambda: plant.swap_fibres("a/nic1:transmit", "a/nic1:transmit"),
    ):
        with pytest.raises(FibreError):
            fault()
    plant.swap_fibres("a/nic1:transmit", "a/nic2:transmit")
    with pytest.raises(FibreError, match="already"):
        plant.swap_fibres("a/nic1:transmit", "b/nic1:transmit")


def test_two_fibres_do_not_fit_into_one_port():
    document = wiring()
    document["hosts"][1]["nics"][0]["transmit"]["port"] = 1
    with pytest.raises(FibreError, match="ocs1:1 has two fibres, a/nic1:transmit and b/nic1:transmit"):
        Plant(document)


def test_a_lone_switch_has_light_on_every_input():
    plant = Plant({"hosts": [], "switches": [{"name": "ocs1", "insertion_loss_db": 2.0}]})
    plant.update_switch("ocs1", {7: 42})
    assert plant.read_input_power_dbm("ocs1", 7) == pytest.approx(-0.3)
    assert plant.read_output_power_dbm("ocs1", 42) == pytest.approx(-2.3)
    assert plant.read_output_power_dbm("ocs1", 43) == -60.0
    assert plant.list_light_paths() == ()


def test_two_switches_are_apart():
    document = wiring()
    document["hosts"][1]["nics"][0]["receive"] = {"switch": "ocs2", "port": 3}
    plant = Plant(document)
    plant.update_switch("ocs1", {1: 103})
    assert plant.list_light_paths() == ()
    plant.update_switch("ocs2", {1: 3})
    assert plant.list_light_paths() == ()  # no fibre of a transmitter ends in input 1 of ocs2


NICS = [f"{host}/nic{number}" for host in "abc" for number in (1, 2)]


@pytest.mark.slow
def test_what_is_rendered_is_what_the_fibres_say():
    seen = Counter()

    @settings(max_examples=100)
    @given(
        st.permutations(range(6)),
        st.integers(0, 6),
        st.sets(st.sampled_from(NICS), max_size=2),
        st.sets(st.sampled_from(NICS), max_size=2),
        st.permutations(range(6)),
    )
    def check(order, connected, cut, dark, shuffled):
        recorder, swapped = Recorder(), shuffled[:2]
        plant = Plant(wiring("abc"), [recorder])
        plant.swap_fibres(*(f"{NICS[index]}:transmit" for index in swapped))
        for nic in cut:
            plant.cut_fibre(f"{nic}:receive")
        for nic in dark:
            plant.set_laser(nic, is_on=False)
        plant.update_switch("ocs1", {source + 1: 101 + order[source] for source in range(connected)})
        plugged = list(range(6))
        plugged[swapped[0]], plugged[swapped[1]] = swapped[1], swapped[0]
        expected = {
            NICS[order[source]]: NICS[plugged[source]]
            for source in range(connected)
            if NICS[order[source]] not in cut and NICS[plugged[source]] not in dark
        }
        assert (recorder.calls or [({}, {})])[-1][1] == expected
        assert len(recorder.calls) == bool(expected)
        seen["lit"] += bool(expected)
        seen["lost"] += len(expected) < connected
        seen["crossed"] += any(source < connected for source in swapped)

    check()
    assert min(seen["lit"], seen["lost"], seen["crossed"]) >= 20, seen


def ask(plant, **request):
    return asyncio.run(answer_request(make_plant_verbs(plant), json.dumps(request).encode()))


def test_the_plant_is_told_by_its_verbs(plant):
    plant.update_switch("ocs1", {1: 103})
    assert ask(plant, do="cut", fibre="a/nic1:transmit") == {"ok": True}
    assert ask(plant, do="loss", fibre="a/nic2:transmit", loss_db=2.5) == {"ok": True}
    assert ask(plant, do="swap", fibres=["a/nic1:receive", "a/nic2:receive"]) == {"ok": True}
    assert ask(plant, do="laser", nic="b/nic1", on=False) == {"ok": True}
    truth = ask(plant, do="truth")
    assert truth["faults"] == {
        "cut": ["a/nic1:transmit"],
        "extra_loss_db": {"a/nic2:transmit": 2.5},
        "swapped": [["a/nic1:receive", "a/nic2:receive"]],
        "lasers_off": ["b/nic1"],
    }
    assert truth["simulated"] is True
    assert [path["arrives"] for path in truth["paths"]] == [False]
    ask(plant, do="uncut", fibre="a/nic1:transmit")
    ask(plant, do="loss", fibre="a/nic2:transmit", loss_db=0)
    ask(plant, do="unswap")
    ask(plant, do="laser", nic="b/nic1", on=True)
    truth = ask(plant, do="truth")
    assert not any(truth["faults"].values())
    assert truth["paths"] == [
        {
            "transmitter": "a/nic1",
            "receiver": "b/nic1",
            "switch": "ocs1",
            "input": 1,
            "output": 103,
            "power_dbm": -1.8,
            "loss_db": 1.8,
            "arrives": True,
        }
    ]


@pytest.mark.parametrize(
    ("request_", "complaint"),
    [
        ({"do": "cut", "fibre": "q/nic1:transmit"}, "no fibre 'q/nic1:transmit'; fibres are named like"),
        ({"do": "cut"}, "field 'fibre' is missing"),
        ({"do": "loss", "fibre": "a/nic1:transmit", "loss_db": "much"}, "must be a number"),
        ({"do": "swap", "fibres": ["a/nic1:transmit"]}, "must name two fibres"),
        ({"do": "laser", "nic": "a/nic1", "on": 1}, "must be true or false"),
    ],
)
def test_bad_requests_to_the_plant_are_explained(plant, request_, complaint):
    reply = ask(plant, **request_)
    assert reply["ok"] is False
    assert complaint in reply["error"]


def test_a_nic_that_is_set_down_sends_no_light_until_it_is_up_again(plant, recorder):
    """A laser that is off by a fault stays so when the interface comes up."""
    plant.update_switch("ocs1", {1: 103})
    plant.update_interfaces({"a/nic1": False, "a/nic2": False})
    assert plant.read_input_power_dbm("ocs1", 1) == plant.read_output_power_dbm("ocs1", 103) == -60.0
    assert recorder.calls[-1] == ({"b/nic1": "a/nic1"}, {})
    assert plant.list_faults()["lasers_off"] == []
    plant.set_laser("a/nic2", is_on=False)
    plant.update_interfaces({"a/nic1": True, "a/nic2": True})
    assert plant.read_input_power_dbm("ocs1", 1) == pytest.approx(-0.3)
    assert plant.read_input_power_dbm("ocs1", 2) == -60.0


def test_the_control_socket_tells_where_every_fibre_ends():
    plant = Plant(wiring("ab", nics=1))
    plant.swap_fibres("a/nic1:transmit", "b/nic1:transmit")
    plant.cut_fibre("a/nic1:receive")
    fibres = plant.describe_fibres()
    assert fibres["a/nic1:transmit"] == {"switch": "ocs1", "port": 2, "cut": False}
    assert fibres["a/nic1:receive"] == {"switch": "ocs1", "port": 101, "cut": True}
    assert make_plant_verbs(plant)["fibres"]({})["fibres"] == fibres

"""The panel that a person patches: the file, the questions, the person who errs, and who finds him out."""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import sys
import threading

import pytest
from needs import needs

from ocs_drivers import CrossConnects, Status, open_switch
from ocs_drivers.errors import AddressError, Conflict, ConnectError, DeviceError, PartialApply
from ocs_drivers.testing import SwitchContract
from ocs_drivers.vendors.manual.panel_file import Panel, PanelFile


@pytest.fixture
def panel(world, open_in_memory):
    """Make a panel 8x8 with its scripted person, on the virtual clock; a cord takes him 30 s."""
    made = world("manual")
    return made, open_in_memory(made, "manual", "operator")


def probing(panel):
    made, switch = panel
    switch.probe = lambda pair: pair in made.truth().items()
    return made, switch


# -- the contract, over a real socket


class TestOnTheTwin(SwitchContract):
    @pytest.fixture
    @needs("process", "socket")
    def switch(self, start_twin, monkeypatch):
        twin = start_twin("manual", "--size=8x8", "--switch-time-ms=0")
        with open_switch(twin.urls["operator"]) as switch:
            yield switch


# -- asking


def test_a_cord_takes_a_person_half_a_minute(panel):
    made, switch = panel
    report = switch.apply(CrossConnects({1: 9, 2: 10}))
    assert report.complete
    assert made.truth() == {1: 9, 2: 10}
    assert made.clock.now() == pytest.approx(60.0, abs=1.0)


def test_removals_come_first_and_the_list_of_work_before_all(panel):
    made, switch = panel
    switch.apply(CrossConnects({1: 9, 2: 10}))
    made.do("transcript", clear=True)
    switch.apply(CrossConnects({1: 10, 2: 9}))
    lines = "".join(
        e["data"] for e in made.do("transcript")["entries"] if e["direction"] == "in"
    ).splitlines()
    assert lines[0] == "panel panel: 4 moves. Answer each question with done, or with no and the reason."
    assert [line.split(" ", 1)[1].split(" ")[0] for line in lines if line[0].isdigit()] == [
        "Remove",
        "Remove",
        "Connect",
        "Connect",
    ]


def test_what_he_refuses_is_failed_with_his_reason(panel):
    made, switch = panel
    made.do("set_fault", fault="refuses")
    with pytest.raises(DeviceError, match="I cannot reach it") as caught:
        switch.apply(CrossConnects({1: 9}))
    assert caught.value.report.pairs == {(1, 9): Status.FAILED}
    assert made.truth() == {}


def test_nobody_is_sent_to_a_panel_that_is_not_as_expected(panel):
    made, switch = panel
    with pytest.raises(Conflict):
        switch.apply(CrossConnects({1: 9}), expect=CrossConnects({1: 10}))
    assert not [e for e in made.do("transcript")["entries"] if e["direction"] == "in"]


# -- a person who errs


def test_a_mistake_is_found_out_by_the_probe_and_reported_as_it_is(panel):
    made, switch = probing(panel)
    made.do("set_fault", fault="mistake")
    with pytest.raises(
        PartialApply, match="the person at the panel reports done, but the light disagrees"
    ) as caught:
        switch.apply(CrossConnects({1: 9}))
    truth = made.truth()
    assert 1 in truth
    assert truth[1] != 9
    assert dict(switch.read().connections) == truth
    assert caught.value.report.pairs == {(1, 9): Status.FAILED, (1, truth[1]): Status.FAILED}


def test_without_a_probe_a_wrong_word_is_believed_and_the_capabilities_say_so(panel):
    made, switch = panel
    assert not switch.capabilities.reads_back
    made.do("set_fault", fault="mistake")
    assert switch.apply(CrossConnects({1: 9})).complete
    assert made.truth() != {1: 9}


def test_who_forgets_is_found_out_too(panel):
    made, switch = probing(panel)
    made.do("set_fault", fault="drop_command")
    with pytest.raises(DeviceError, match="the person at the panel reports done, but the light disagrees"):
        switch.apply(CrossConnects({1: 9}))
    assert switch.read().connections == {}


@pytest.mark.parametrize("executed", [True, False])
def test_after_a_lost_line_he_is_asked_where_the_cord_goes(panel, executed):
    made, switch = panel
    switch.read()
    made.do("set_fault", fault="close_connection", after_commands=3, executed=executed)
    try:
        report = switch.apply(CrossConnects({1: 9}))
    except (DeviceError, PartialApply) as error:
        report = error.report
    assert (report.pairs[1, 9] is Status.DONE) == executed
    assert dict(switch.read().connections) == made.truth()


def test_a_crash_in_the_middle_of_a_question_leaves_a_doubt_and_not_a_guess(start_twin, tmp_path):
    """The process is killed after the person has moved the cord, and before he says so."""
    twin = start_twin("manual", "--size=8x8", "--switch-time-ms=0")
    twin.do("set_fault", fault="delay_reply", seconds=3600)
    where = twin.urls["operator"].partition("?")[2]
    address = f"manual://{tmp_path}/panel.json?{where}"
    program = f"from ocs_drivers import open_switch\nopen_switch({address!r}).connect({{1: 9}})"
    with subprocess.Popen([sys.executable, "-c", program]) as killed:
        while not twin.truth():
            assert killed.poll() is None
        killed.send_signal(signal.SIGKILL)
    document = json.loads((tmp_path / "panel.json").read_text())
    assert (document["patched"], document["doubtful"]) == ([], [1])
    twin.do("clear_fault", fault="delay_reply")
    with open_switch(address) as switch:
        assert dict(switch.read().connections) == {1: 9}


# -- the file


def test_the_file_is_made_on_first_use_and_remembers(tmp_path):
    path = tmp_path / "panel.json"
    with pytest.raises(ConnectError, match="size=24x24"):
        PanelFile(path, size=None, name="").read()
    panel = PanelFile(path, size=(2, 3), name="leaf").read()
    PanelFile(path, size=None, name="").write(panel.set_cord(1, 4).mark_doubtful(2))
    again = PanelFile(path, size=(2, 3), name="").read()
    assert (again.name, dict(again.patched), again.doubtful) == ("leaf", {1: 4}, frozenset({2}))
    assert [p.name for p in tmp_path.iterdir()] == ["panel.json"]


def test_a_file_of_another_size_is_refused(tmp_path):
    path = tmp_path / "panel.json"
    PanelFile(path, size=(2, 2), name="").read()
    with pytest.raises(AddressError, match="2x2"):
        PanelFile(path, size=(3, 3), name="").read()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"name": "x", "size": [2, 2], "patched": [[1, 9]]}',
        '{"name": "x", "size": [2], "patched": []}',
    ],
)
def test_what_is_no_panel_is_refused(tmp_path, text):
    path = tmp_path / "panel.json"
    path.write_text(text)
    with pytest.raises(AddressError, match="not a panel file"):
        PanelFile(path, size=None, name="").read()


def test_a_cord_that_went_elsewhere_displaces_the_belief_about_both_ends():
    panel = Panel("p", 4, 4, CrossConnects({1: 5, 2: 6}))
    assert dict(panel.set_cord(1, 6).patched) == {1: 6}
    assert dict(panel.set_cord(2, None).patched) == {1: 5}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("size=big", "is not a size"),
        ("operator=nowhere", "is not the address of an operator"),
        ("patience_s=long", "patience_s"),
        ("x=1", "unknown option"),
    ],
)
def test_options_without_sense_are_refused(tmp_path, options, complaint):
    with pytest.raises(AddressError, match=complaint):
        open_switch(f"manual://{tmp_path}/panel.json?{options}")


# -- people


def test_on_the_terminal_questions_go_to_standard_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("done\nno it is stuck\n"))
    with open_switch(f"manual://{tmp_path}/panel.json?size=2x2") as switch:
        assert switch.connect({1: 3}).complete
        with pytest.raises(DeviceError, match="it is stuck"):
            monkeypatch.setattr("sys.stdin", io.StringIO("no it is stuck\nnone\n"))
            switch.connect({2: 4})
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "1. Connect input 1 to output 3." in shown.err


def test_an_ended_terminal_leaves_the_doubt_for_the_next_time(tmp_path, monkeypatch):
    address = f"manual://{tmp_path}/panel.json?size=2x2"
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with open_switch(address) as switch, pytest.raises(PartialApply):
        switch.connect({1: 3})
    monkeypatch.setattr("sys.stdin", io.StringIO("3\n"))
    with open_switch(address) as switch:
        assert dict(switch.read().connections) == {1: 3}


@pytest.mark.socket
def test_a_colleague_with_netcat_is_enough(tmp_path):
    """Somebody else's client: a plain socket that answers `done` to what ends like an order."""
    received = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def colleague() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rw") as lines:
                for line in lines:
                    received.append(line.rstrip())
                    if line[0].isdigit():
                        lines.write("Done\r\n")
                        lines.flush()

        thread = threading.Thread(target=colleague)
        thread.start()
        port = listener.getsockname()[1]
        with open_switch(f"manual://{tmp_path}/p.json?size=4x4&operator=127.0.0.1:{port}") as switch:
            assert switch.connect({1: 5, 2: 6}).complete
        thread.join(60)
    assert received[0] == "panel p: 2 moves. Answer each question with done, or with no and the reason."
    assert received[-2:] == ["1. Connect input 1 to output 5.", "2. Connect input 2 to output 6."]


def test_labels_of_the_file_are_shown_to_the_person(tmp_path, monkeypatch, capsys):
    path = tmp_path / "panel.json"
    document = {"name": "p", "size": [2, 2], "patched": [], "labels": {"1": "node1/nic0", "3": "spine"}}
    path.write_text(json.dumps(document))
    monkeypatch.setattr("sys.stdin", io.StringIO("done\n"))
    with open_switch(f"manual://{path}") as switch:
        assert switch.ports()[1].label == "node1/nic0"
        switch.connect({1: 3})
    assert "Connect input 1 (node1/nic0) to output 3 (spine)." in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["panel.json"]

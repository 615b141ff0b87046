"""Starting and ending simulated labs: the document, the process, the key, and what is left afterwards."""

from __future__ import annotations

import json
import os
import pwd
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from ipaddress import IPv4Network
from itertools import islice
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("jsonschema")
skip_without("pydantic")

import jsonschema

from testbed.cli.app import run_app
from testbed.errors import LabStartError
from testbed.lab.checkup import check_lab
from testbed.lab.control import send_request
from testbed.lab.inventory import load_lab, parse_lab
from testbed.lab.simulated.lifecycle import (
    SimulatedLab,
    ensure_key,
    find_hosts_in_use,
    find_running_lab,
    find_running_lab_id,
    list_candidate_subnets,
    list_simulated_labs,
    remove_simulated_labs,
    start_lab,
)
from testbed.lab.simulated.wiring_document import make_wiring_document

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "sim" / "lab" / "wiring.schema.json").read_text())


def test_the_document_follows_the_schema():
    lab = load_lab(ROOT / "labs" / "testbed12.yaml")
    document = make_wiring_document(lab, hosts="kernel", public_key="ssh-ed25519 AAAA lightbed")
    jsonschema.validate(document, SCHEMA)
    assert document["control"] == "10.99.0.1:7000"
    (switch,) = document["switches"]
    assert (switch["scpi"], switch["tl1"], switch["control"]) == (
        "10.99.0.2:5025",
        "10.99.0.2:3082",
        "10.99.0.2:7025",
    )
    assert len(document["hosts"]) == 12
    assert document["hosts"][1]["address"] == "10.100.2.100"
    assert document["hosts"][1]["nics"][0] == {
        "name": "nic1",
        "address": "10.100.2.1",
        "transmit": {"switch": "ocs1", "port": 5, "loss_db": 0.3},
        "receive": {"switch": "ocs1", "port": 53, "loss_db": 0.3},
    }


@pytest.mark.parametrize(
    ("address", "scpi", "tl1"),
    [
        ("polatis+scpi://10.99.0.2", "10.99.0.2:5025", "10.99.0.2:3082"),
        ("polatis+tl1://10.99.0.2:3999", "10.99.0.2:5025", "10.99.0.2:3999"),
        ("TCPIP0::10.99.0.2::5026::SOCKET", "10.99.0.2:5026", "10.99.0.2:3082"),
    ],
)
def test_a_twin_listens_where_the_lab_file_says(small_lab_text, address, scpi, tl1):
    lab = parse_lab(small_lab_text().replace("polatis+scpi://10.99.0.2:5025", address), "x.yaml")
    (switch,) = make_wiring_document(lab)["switches"]
    assert (switch["scpi"], switch["tl1"]) == (scpi, tl1)


def test_candidates_begin_with_the_labs_own_subnet_and_go_on_in_order():
    own, loopback = IPv4Network("10.99.1.0/24"), IPv4Network("127.99.3.0/24")

    def first(*arguments, **keywords):
        return [str(subnet) for subnet in islice(list_candidate_subnets(*arguments, **keywords), 3)]

    assert first(own, "kernel", may_move=False) == ["10.99.1.0/24"]
    assert first(own, "kernel", may_move=True) == ["10.99.1.0/24", "10.99.0.0/24", "10.99.2.0/24"]
    assert first(own, "model", may_move=False) == ["127.99.0.0/24", "127.99.1.0/24", "127.99.2.0/24"]
    assert first(loopback, "model", may_move=False) == ["127.99.3.0/24"]
    assert first(IPv4Network("10.40.0.0/20"), "kernel", may_move=True)[1] == "10.99.0.0/20"


def test_the_key_is_made_once_and_is_private(tmp_path):
    path = tmp_path / "state" / "id_ed25519"
    public = ensure_key(path)
    assert public.startswith("ssh-ed25519 ")
    assert public.endswith(" lightbed")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert ensure_key(path) == public
    assert path.read_text().startswith("-----BEGIN OPENSSH PRIVATE KEY-----")


def test_many_at_once_agree_on_one_key(tmp_path):
    path, publics = tmp_path / "id_ed25519", []
    barrier = threading.Barrier(8)

    def make():
        barrier.wait()
        publics.append(ensure_key(path))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(publics) == 8
    assert len(set(publics)) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["id_ed25519"]


def test_a_real_lab_is_not_started(small_lab_text):
    with pytest.raises(
        LabStartError, match="lab 'small' is real and already runs; only a lab with 'simulated: true'"
    ):
        start_lab(parse_lab(small_lab_text(simulated=False), "x.yaml"))


@pytest.fixture
def lab(small_lab_text):
    return parse_lab(small_lab_text(name=f"small-{os.getpid()}"), "x.yaml")


def answers(address):
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
    except OSError:
        return False
    return True


def has_ended(pid):
    """Ask for the process, not for its addresses: another lab on this machine may take those at once."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "XZ"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.socket
@pytest.mark.process
def test_a_modelled_lab_lives_on_the_loopback_network_until_it_is_left(lab):
    with start_lab(lab, hosts="model") as up:
        assert (up.hosts_mode, up.mode_reason, up.is_running) == ("model", "as requested", True)
        assert up.lab.management.is_loopback
        assert find_hosts_in_use(up.lab) == "model"
        assert send_request(up.control_addresses["ocs1"], {"do": "truth"})["connections"] == []
        assert answers(up.lab.switches[0].address.removeprefix("polatis+scpi://"))
        with pytest.raises(LabStartError, match="unknown verb 'sing'; this socket knows"):
            send_request(up.control_addresses["plant"], {"do": "sing"})
    assert not up.is_running
    assert has_ended(up.pid)


@pytest.mark.socket
def test_a_twin_that_is_not_there_is_named_with_what_to_look_at():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and does not listen
        address = "{}:{}".format(*silent.getsockname())
        assert not answers(address)
        with pytest.raises(LabStartError, match=r"does not answer .* `testbed sim status`"):
            send_request(address, {"do": "truth"})


@pytest.mark.long
@pytest.mark.process
def test_two_modelled_labs_at_once_have_networks_of_their_own(lab):
    with start_lab(lab, hosts="model") as one, start_lab(lab, hosts="model") as two:
        assert one.lab.management != two.lab.management
        assert {one.lab_id, two.lab_id} <= {
            entry["lab_id"] for entry in list_simulated_labs() if entry["live"]
        }
        with pytest.raises(LabStartError, match="is running 2 times"):
            find_running_lab(lab)


@pytest.mark.process
def test_a_subnet_in_use_is_refused_with_a_hint_and_moved_when_allowed(lab):
    with start_lab(lab, hosts="model") as one:
        with pytest.raises(LabStartError, match=f"did not start: .*{one.lab.management}.*; .*--move"):
            start_lab(one.lab, hosts="model")
        with start_lab(one.lab, hosts="model", may_move=True) as two:
            assert two.lab.management != one.lab.management


@pytest.mark.socket
@pytest.mark.process
def test_a_detached_lab_stays_is_found_and_is_taken_down_by_name(lab):
    up = start_lab(lab, hosts="model", is_detached=True)
    try:
        with up:
            pass
        assert answers(up.control_addresses["ocs1"])
        assert find_running_lab(lab) == up.lab
        assert find_running_lab_id(lab) == up.lab_id
        (entry,) = [entry for entry in list_simulated_labs() if entry["lab_id"] == up.lab_id]
        assert entry == {
            "lab_id": up.lab_id,
            "lab": lab.name,
            "live": True,
            "hosts": "model",
            "pid": up.pid,
            "subnet": str(up.lab.management),
            "rate_mbps": up.lab.link.rate_mbps,
            "user": pwd.getpwuid(os.geteuid()).pw_name,
        }
        assert remove_simulated_labs([up.lab_id]) == (up.lab_id,)
        assert not answers(up.control_addresses["ocs1"])
        assert find_running_lab(lab) == lab
        with pytest.raises(LabStartError, match=f"no simulated lab '{lab.name}' is running"):
            find_running_lab_id(lab)
    finally:
        up.close()


@pytest.mark.socket
@pytest.mark.process
def test_the_end_of_a_named_lab_says_nothing_of_others(lab, capsys):
    with (
        start_lab(lab, hosts="model", may_move=True) as one,
        start_lab(lab, hosts="model", may_move=True) as two,
    ):
        assert run_app(["sim", "down", two.lab_id, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"removed": [two.lab_id], "left": []}
        assert one.is_running


@pytest.mark.process
def test_an_interpreter_of_hosts_that_is_not_there_is_told_once(lab):
    nowhere = replace(lab, hosts=tuple(replace(host, python="/nowhere/python") for host in lab.hosts))
    (check,) = check_lab(nowhere)
    assert (check.ok, check.found) == (False, "/nowhere/python: No such file or directory")


@pytest.mark.process
def test_a_lab_that_is_not_there_cannot_be_taken_down():
    with pytest.raises(LabStartError, match="no lab lb000000 on this machine; Running labs"):
        remove_simulated_labs(["lb000000"])


@pytest.mark.long
@pytest.mark.socket
@pytest.mark.process
def test_the_lab_ends_with_a_process_that_is_killed(lab, small_lab_text, tmp_path):
    path = tmp_path / "lab.yaml"
    path.write_text(small_lab_text())
    program = f"""
        import time
        from testbed.lab.inventory import load_lab
        from testbed.lab.simulated.lifecycle import start_lab
        lab = start_lab(load_lab({str(path)!r}), hosts="model")
        print(lab.pid, lab.control_addresses["ocs1"], flush=True)
        time.sleep(600)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as user:
        pid, address = user.stdout.readline().split()
        assert answers(address)
        assert not has_ended(pid)
        user.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while not has_ended(pid):
        assert time.monotonic() < deadline, "the supervisor outlived its user"


def broken_supervisor(monkeypatch, tmp_path, program):
    """Have `python -m sim.lab` mean another program."""
    (tmp_path / "sim" / "lab").mkdir(parents=True)
    (tmp_path / "sim" / "__init__.py").write_text("")
    (tmp_path / "sim" / "lab" / "__init__.py").write_text("")
    (tmp_path / "sim" / "lab" / "__main__.py").write_text(textwrap.dedent(program))
    monkeypatch.setattr(
        "testbed.lab.simulated.supervisor.make_child_environment",
        lambda: os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    monkeypatch.chdir(tmp_path)


BROKEN = {
    "it crashes": (
        "raise RuntimeError('out of order')",
        "ended with status 1: RuntimeError: out of order; run `testbed doctor`",
    ),
    "it says something else": (
        "print('hello', flush=True); import sys; sys.stdin.read()",
        "hello; run `testbed doctor`",
    ),
    "it stays silent": ("import sys; sys.stdin.read()", "was not ready within 1 s: no output"),
    "it refuses": (
        """print('{"ready": false, "error": "no sshd", "hint": "apt install openssh-server", "code": "x"}')""",
        "did not start: no sshd; apt install openssh-server",
    ),
    "it refuses without a hint": (
        """print('{"ready": false, "error": "no"}')""",
        "did not start: no; run `testbed doctor`",
    ),
}


@pytest.mark.process
@pytest.mark.parametrize("case", BROKEN)
def test_a_supervisor_that_does_not_come_up_is_told_with_its_last_words(monkeypatch, tmp_path, lab, case):
    program, words = BROKEN[case]
    broken_supervisor(monkeypatch, tmp_path, program)
    with pytest.raises(LabStartError) as caught:
        start_lab(lab, hosts="model", timeout_s=1.0 if case == "it stays silent" else 20.0)
    assert words in str(caught.value)


@pytest.mark.process
def test_without_root_hosts_are_modelled_and_the_reason_is_told(monkeypatch, lab):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with start_lab(lab) as up:
        assert isinstance(up, SimulatedLab)
        assert (up.hosts_mode, up.mode_reason) == ("model", "kernel hosts need root")

"""A trial of a board: which program, which NIC, which requests; the client itself is in `tests/node`."""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import replace
from ipaddress import IPv4Address
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from libraries import skip_without
from needs import needs

skip_without("asyncssh")
skip_without("sqlalchemy")

from testbed.commands.progress import PlainNarrator
from testbed.errors import HostError, InferenceError
from testbed.lab.hosts.launch import CommandResult
from testbed.lab.inventory import load_lab
from testbed.lab.model import FibreEnd
from testbed.measure.inference import (
    InferenceTrial,
    choose_attachment,
    find_model_number,
    make_lab_with_model,
    prepare_trial,
    send_requests,
    summarise_latencies,
)
from testbed.measure.job import run_job
from testbed.measure.results.records import Latency
from testbed.measure.results.store import RunStore

LABS = Path(__file__).resolve().parents[2] / "labs"


@pytest.fixture(scope="module")
def lab():
    return load_lab(LABS / "testbed12-board.yaml")


@pytest.fixture(scope="module")
@needs("process")
def compiled(tmp_path_factory):
    """Provide a function that compiles a model of dense layers with these numbers of inputs and outputs."""
    folder = tmp_path_factory.mktemp("models")
    random = np.random.default_rng(1)

    def compile_model(*sizes: int) -> Path:
        name = "x".join(map(str, sizes))
        weights = {
            f"w{layer + 1}": random.normal(0, 0.1, (after, before)).astype(np.float32)
            for layer, (before, after) in enumerate(pairwise(sizes))
        }
        np.savez(folder / f"{name}.npz", **weights)
        file = folder / f"{name}.lng"
        command = [sys.executable, "-m", "lightning.cli", "compile", folder / f"{name}.npz", "-o", file]
        subprocess.run(command, check=True, capture_output=True)
        return file

    return compile_model


class TestProgram:
    def test_a_simulated_board_gets_the_model(self, lab, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        changed = make_lab_with_model(lab, Path("m.lng"))

        assert changed.boards[0].program == (tmp_path / "m.lng",)
        assert changed.boards[1:] == lab.boards[1:]
        assert replace(changed, boards=lab.boards) == lab

    def test_a_real_board_keeps_its_own(self, lab, tmp_path):
        files = (tmp_path / "a.lng", tmp_path / "b.lng")
        real = replace(lab, simulated=False, boards=(replace(lab.boards[0], program=files),))

        assert make_lab_with_model(real, tmp_path / "sub" / ".." / "b.lng") is real
        assert [find_model_number(real.boards[0], file) for file in files] == [0, 1]
        with pytest.raises(InferenceError, match=r"board 'board1' runs .*a\.lng, .*b\.lng, not .*c\.lng"):
            make_lab_with_model(real, tmp_path / "c.lng")

    def test_a_real_board_without_a_program_in_the_lab_file_is_trusted(self, lab):
        real = replace(lab, simulated=False, boards=(replace(lab.boards[0], program=()),))

        assert make_lab_with_model(real, Path("m.lng")) is real
        assert find_model_number(real.boards[0], Path("m.lng")) == 0

    def test_a_lab_without_boards(self):
        with pytest.raises(
            InferenceError, match=r"'testbed12' has no boards: add `boards` to .*testbed12\.yaml"
        ):
            make_lab_with_model(load_lab(LABS / "testbed12.yaml"), Path("m.lng"))

    def test_a_file_that_is_not_compiled(self, lab):
        with pytest.raises(InferenceError, match=r"m\.onnx is not a compiled model"):
            make_lab_with_model(lab, Path("m.onnx"))


class TestAttachment:
    def test_the_last_nic_of_the_first_host(self, lab):
        assert choose_attachment(lab).labels == ("a/nic4 -> board1/port1", "board1/port1 -> a/nic4")

    def test_only_nics_at_the_switch_of_the_board(self, lab):
        """Of a lab with a switch for each plane, the board is at one of them."""
        host = lab.hosts[0]
        nics = tuple(
            replace(nic, transmit=FibreEnd(f"ocs{1 + number % 2}", number + 1, 0.0))
            for number, nic in enumerate(host.nics)
        )
        planes = replace(lab, hosts=(replace(host, nics=nics), *lab.hosts[1:]))

        assert choose_attachment(planes).nic == "nic3"


class TestRequests:
    @pytest.mark.slow
    def test_requests_carry_the_number_of_the_model_and_a_real_lab_needs_no_picture(
        self, lab, compiled, monkeypatch
    ):
        model = compiled(64, 10)
        real = replace(
            lab, simulated=False, boards=(replace(lab.boards[0], program=(Path("other.lng"), model)),)
        )
        notes: list[str] = []
        monkeypatch.setenv("PATH", "")  # without the simulator of the smartNIC there is no picture

        trial = prepare_trial(real, model, 3, notes.append)

        assert len(trial.request_lines.splitlines()) == trial.request_count == 3
        assert '"number": 2, "request": "4c42495001010100' + "00000001" in trial.request_lines
        assert trial.picture == b""
        (note,) = notes
        assert note.startswith("no picture of a request: lightning trace: ")

    @pytest.mark.process
    def test_a_file_that_cannot_be_read_is_refused_with_the_words_of_lightning(self, lab, tmp_path):
        with pytest.raises(InferenceError, match=r"lightning trace: .*m\.lng cannot be read"):
            prepare_trial(lab, tmp_path / "m.lng", 1, print)

    @pytest.mark.slow
    def test_a_model_that_the_smartnic_cannot_hold_is_refused_before_the_lab_starts(self, lab, compiled):
        model = compiled(64, 5000)
        with pytest.raises(InferenceError, match=r"lightning trace: 64x5000 does not fit the smartNIC"):
            prepare_trial(make_lab_with_model(lab, model), model, 1, print)


class LocalFleet:
    """A `Fleet` whose host is this machine without a network: its client fails, or says what the test wants."""

    def __init__(self, status: int, stdout: str, stderr: str = "") -> None:
        self.result = CommandResult("a", status, stdout, stderr)
        self.files: dict[str, bytes] = {}
        self.command: list[str] = []
        self.stdin = ""

    def put(self, files, *, hosts):
        assert list(hosts) == ["a"]
        self.files = files
        return "FOLDER"

    def run(self, commands, *, stdin, timeout_s):
        assert timeout_s > 60
        self.command, self.stdin = shlex.split(commands["a"]), stdin["a"]
        return {"a": self.result}


class TestClient:
    def test_the_host_runs_the_client(self, lab):
        fleet = LocalFleet(0, '{"answered": 1}\n')
        port = lab.boards[0].ports[0]

        found = send_requests(fleet, lab.hosts[0], port, "{}\n", 60.0)

        assert found == {"answered": 1}
        assert set(fleet.files) == {"inference.py"}
        assert fleet.command[1:5] == [
            "-IS",
            "FOLDER/inference.py",
            "--to",
            f"{IPv4Address('10.100.20.1')}:8500",
        ]
        assert fleet.command[-2:] == ["--deadline", "60"]
        assert fleet.stdin == "{}\n"

    def test_a_client_that_fails_is_an_error_of_its_host(self, lab):
        fleet = LocalFleet(1, "", "Traceback...\nValueError: no")
        with pytest.raises(HostError, match="the inference client failed on a: ValueError: no") as raised:
            send_requests(fleet, lab.hosts[0], lab.boards[0].ports[0], "{}\n", 60.0)
        assert raised.value.host == "a"


def test_latencies_are_ranked():
    assert summarise_latencies([float(number) for number in range(1, 201)]) == Latency(
        1.0, 100.5, 198.0, 200.0
    )
    assert summarise_latencies([]) is None


@pytest.mark.process
@pytest.mark.socket
@pytest.mark.slow
def test_a_job_on_modelled_hosts_is_refused_before_it_is_a_run(lab, tmp_path):
    """`--hosts auto` chooses them without root."""
    trial = InferenceTrial(Path("m.lng"), "{}\n", 1, b"")
    with pytest.raises(HostError, match="'testbed12-board' are only modelled and send no packets to a board"):
        run_job(lab, hosts="model", sizes=(1024,), runs_dir=tmp_path, narrator=PlainNarrator(), trial=trial)
    assert RunStore(tmp_path).list_runs() == ()

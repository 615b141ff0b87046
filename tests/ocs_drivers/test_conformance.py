"""The conformance kit, as an operator runs it: every driver over real sockets, SSH and serial lines, on its twin."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from libraries import skip_without
from schemes import BANKS, SCHEMES

from ocs_drivers.testing.plugin import read_record

skip_without("pyvisa_py")
skip_without("asyncssh")
skip_without("h11")

FAST = ("--speed=2000", "--option=idle_s=1e9")
"""A robot's minute in 30 ms; its patience is not what we try here."""
QUICK_LINE = ("--option=baud=1000000",)
QUERY = {
    "telescent": "?poll_s=0.02&move_s=0.5&longest_s=2",
    "rome": "?poll_s=0.02",
    "afm": "?poll_s=0.02",
}
"""A robot of 30 ms is not looked at every few seconds, nor given half an hour."""
OPTIONS = dict.fromkeys(("telescent", "rome", "afm", "sonic"), FAST) | {"manual": FAST[:1]}
"""Options of the twins of a family."""
IN_SHORT = ("calient+rest", "mosw+scpi")
"""Drivers that the kit proves in `make test`: a switch and a bank; those over SSH have the contract of their own."""


def kit(address: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ocs_drivers.testing", address, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)


def check_contract(scheme: str, twin: Any, record: Path) -> None:
    """Let the kit prove a driver on a fresh twin."""
    family, front = SCHEMES[scheme]
    run = kit(
        twin.urls[front] + QUERY.get(family, ""),
        "--free-ports",
        "all" if scheme in BANKS else "2-6:10-15",
        "--control",
        twin.urls["control"],
        "--record",
        str(record),
    )

    assert run.returncode == 0, run.stdout[-4000:]
    document = read_record(record)
    outcomes = [result.partition(":")[0] for result in document["results"].values()]
    assert outcomes.count("failed") == 0
    assert outcomes.count("passed") >= (4 if scheme in BANKS else 30)
    assert document["switch"]["simulated"]


def start(start_twin: Any, scheme: str) -> Any:
    family, front = SCHEMES[scheme]
    return start_twin(family, "--size=8x8", *(QUICK_LINE if front == "serial" else OPTIONS.get(family, ())))


@pytest.mark.parametrize("scheme", IN_SHORT)
def test_a_driver_of_each_kind_keeps_the_contract_on_its_twin(scheme, start_twin, tmp_path):
    check_contract(scheme, start(start_twin, scheme), tmp_path / "record.json")


@pytest.mark.long
@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme not in IN_SHORT])
def test_every_other_driver_keeps_the_contract_on_its_twin(scheme, start_twin, tmp_path):
    check_contract(scheme, start(start_twin, scheme), tmp_path / "record.json")


@pytest.mark.long
def test_ports_in_use_are_not_free_and_stay_as_they_are(shared_twin):
    twin = shared_twin("polatis", "--size=8x8")
    twin.do("operator", connect=[[3, 9], [1, 12]])

    run = kit(twin.urls["tl1"], "--free-ports", "2-6:10-15")

    assert (run.returncode, run.stdout) == (1, "")
    (line,) = run.stderr.splitlines()
    assert "ports [3, 12] carry circuits" in line
    assert twin.truth() == {1: 12, 3: 9}


@pytest.mark.long
def test_circuits_of_others_are_untouched(shared_twin):
    twin = shared_twin("polatis", "--size=8x8")
    twin.do("operator", connect=[[1, 9], [8, 16]])

    run = kit(twin.urls["scpi"], "--free-ports", "2-6:10-15", "-k", "apply or scope")

    assert run.returncode == 0, run.stdout[-4000:]
    assert twin.truth() == {1: 9, 8: 16}


def test_a_record_is_signed_and_a_changed_one_is_found_out(shared_twin, tmp_path):
    twin = shared_twin("polatis", "--size=8x8")
    key, record = tmp_path / "key", tmp_path / "record.json"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    signers = tmp_path / "signers"
    signers.write_text(f"lab {key.with_suffix('.pub').read_text()}")

    def verify() -> int:
        command = ["ssh-keygen", "-Y", "verify", "-f", signers, "-I", "lab", "-n", "lightbed-conformance"]
        with record.open() as content:
            return subprocess.run(
                [*command, "-s", f"{record}.sig"], stdin=content, capture_output=True, check=False
            ).returncode

    run = kit(
        *(twin.urls["tl1"], "--free-ports", "all", "-k", "identity or nothing_to_do"),
        *("--record", str(record), "--sign-with", str(key)),
    )

    assert run.returncode == 0, run.stdout[-4000:]
    assert verify() == 0
    document = json.loads(record.read_text())
    document["switch"]["identity"]["serial"] = "000001"
    record.write_text(json.dumps(document))
    assert verify() != 0
    with pytest.raises(Exception, match="was modified after it was written"):
        read_record(record)

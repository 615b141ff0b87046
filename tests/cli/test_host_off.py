"""Looking at a lab one of whose hosts is off: the host is told once, and the rest is looked at all the same."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from libraries import skip_without
from needs import needs

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")
skip_without("typer")

from testbed.lab.inventory import load_lab, render_lab
from testbed.lab.simulated.lifecycle import start_lab

pytestmark = pytest.mark.kernel
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
@needs("process", "socket")
def labs(tmp_path_factory):
    """Provide a directory with `lab.yaml`, four hosts joined to a ring, and `off.yaml`, where d does not answer."""
    from testbed.cli.app import run_app

    place = tmp_path_factory.mktemp("off")
    lab = load_lab(ROOT / "labs" / "testbed12.yaml")
    python = str(Path(sys.executable).resolve())
    hosts = tuple(replace(host, nics=host.nics[:2], python=python) for host in lab.hosts[:4])
    lab = replace(lab, name=f"off-{os.getpid()}", hosts=hosts, ssh_key=place / "key")
    with start_lab(lab, hosts="kernel", may_move=True) as up:
        (place / "lab.yaml").write_text(render_lab(up.lab), encoding="utf-8")
        *others, last = up.lab.hosts
        nobody = replace(up.lab, hosts=(*others, replace(last, ssh_port=1)))
        (place / "off.yaml").write_text(render_lab(nobody), encoding="utf-8")
        assert run_app(["apply", str(place / "lab.yaml"), "--runs-dir", str(place / "runs"), "--json"]) == 0
        yield place


@pytest.fixture
def ask(testbed, labs):
    def asked(*words):
        return testbed(*words, "--runs-dir", labs / "runs")

    return asked


def test_path_follows_the_packet_past_a_host_that_is_off(ask, labs):
    ran = ask("path", labs / "off.yaml", "a", "b", "--json")
    assert (ran.code, ran.json["kernel"]["end"]) == (0, "")
    (found,) = ran.json["findings"]
    assert (found["kind"], found["subject"]) == ("host_off", "d")


def test_path_to_a_host_that_is_off_ends_before_it(ask, labs):
    ran = ask("path", "a", "d", "--lab", labs / "off.yaml")
    assert ran.code == 2
    assert "host_off: d: no session with" in ran.out
    assert "d does not answer: it is unknown whether the packet arrives" in ran.out
    back = ask("path", labs / "off.yaml", "d", "a")
    assert (back.code, "d does not answer: its next hop is unknown" in back.out) == (2, True)


def test_the_lab_file_stands_first_as_in_other_commands_or_after_its_option(ask, labs):
    first, option = (
        ask("path", labs / "lab.yaml", "a", "c"),
        ask("path", "a", "c", "--lab", labs / "lab.yaml"),
    )
    assert (first.code, option.code) == (0, 0)
    assert first.out == option.out
    twice = ask("path", labs / "lab.yaml", "a", "c", "--lab", labs / "off.yaml")
    assert (twice.code, "two lab files" in twice.err) == (1, True)
    alone = ask("path", "a")
    assert (alone.code, "write `testbed path [LAB] A B`" in alone.err) == (1, True)


def test_repair_looks_at_the_links_of_the_other_hosts(ask, labs):
    ran = ask("repair", labs / "off.yaml", "--json")
    assert (ran.code, ran.json["lost"]) == (2, [])
    assert [found["kind"] for found in ran.json["findings"]] == ["host_off"]
    plain = ask("repair", labs / "off.yaml")
    assert "no fibre of the checked links is lost" in plain.out
    assert "    check its power, its management network and sshd" in plain.out
    refused = ask("repair", labs / "off.yaml", "--apply")
    assert (refused.code, "d" in refused.err) == (1, True)


def test_drift_reads_the_others_and_prints_what_to_do(ask, labs):
    ran = ask("drift", labs / "off.yaml")
    assert ran.code == 2
    assert "host_off: d: no session with" in ran.out
    assert "    check its power, its management network and sshd" in ran.out
    assert json.loads(ask("drift", labs / "off.yaml", "--json").out)["not_kept"] == ""

"""A lab without hosts of its own: twins on loopback addresses, no root, no namespaces."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from contextlib import AsyncExitStack

import pytest
from libraries import skip_without

skip_without("jsonschema")

from sim.lab.document import parse_document
from sim.lab.model import LabError
from sim.lab.supervisor import start_lab

pytestmark = [pytest.mark.process, pytest.mark.socket]


@pytest.fixture
def wiring(labs):
    return labs.document(2, subnet=labs.free_subnet("127.97"), mode="model")


def test_without_namespaces_twins_answer_on_loopback_and_the_line_says_model(labs, wiring):
    with labs.supervised(wiring) as up:
        assert (up.ready["ready"], up.ready["hosts"]) == (True, "model")
        up.scpi(":oxc:swit:conn:only (@1),(@5)")
        assert up.control("ocs1", {"do": "truth"})["connections"] == [[1, 5]]
        assert up.control("plant", {"do": "truth"})["ok"]
        assert up.end_input() == 0
    assert labs.traces(up.lab_id) == []


def test_a_document_may_come_from_a_file_and_then_input_is_only_the_life_line(labs, wiring, tmp_path):
    file = tmp_path / "wiring.json"
    file.write_text(json.dumps(wiring, indent=2))
    with labs.supervised(None, str(file)) as up:
        assert up.ready["ready"] is True
        assert up.end_input() == 0


def test_a_file_that_is_not_there_is_named(labs, tmp_path):
    exit_status, said, _ = labs.sim_lab(str(tmp_path / "none.json"))
    assert (exit_status, said["code"]) == (1, "document")
    assert "none.json: No such file" in said["error"]


@pytest.mark.long
def test_two_labs_on_one_loopback_subnet_exclude_each_other(labs, wiring):
    with labs.supervised(wiring) as up:
        assert up.ready["ready"]
        assert labs.refusal(wiring)[1]["code"] == "subnet_taken"


def test_a_loopback_address_that_a_stranger_has_means_the_subnet_is_taken(labs, wiring):
    host, port = wiring["switches"][0]["tl1"].split(":")
    with socket.create_server((host, int(port))):
        exit_status, said = labs.refusal(wiring)
    assert (exit_status, said["code"]) == (1, "subnet_taken")


def test_without_root_kernel_hosts_are_refused_with_the_way_out(labs, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LabError, match=r"need root.*--hosts model") as caught:
        asyncio.run(start_lab(parse_document(json.dumps(labs.document(2))), AsyncExitStack()))
    assert caught.value.code == "not_root"

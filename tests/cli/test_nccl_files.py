"""`testbed env --nccl`: the files of every host, and what the output says about them."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("sqlalchemy")

from nccl_reader import read_graphs, read_topology

from testbed.lab.inventory import render_lab

RINGS = ["ring-1.xml", "ring-5.xml", "ring-7.xml", "ring-11.xml"]


def test_every_host_gets_files_that_nccl_reads(testbed, lab_file, tmp_path):
    done = testbed("env", lab_file, "--nccl", "nccl", "--json")
    assert done.code == 0
    document = done.json["nccl"]
    names = [rank["host"] for rank in done.json["ranks"]]
    assert [ring["graph"] for ring in document["rings"]] == RINGS
    assert [(ring["stride"], ring["channels"]) for ring in document["rings"]] == [
        (1, 1),
        (5, 1),
        (7, 1),
        (11, 1),
    ]
    assert document["rings"][0]["hosts"] == names
    assert document["rings"][1]["hosts"] == [names[5 * step % 12] for step in range(12)]
    assert sorted(document["hosts"]) == names
    for host, files in document["hosts"].items():
        folder = tmp_path / "nccl" / host
        assert files["topology"] == str(folder / "topology.xml")
        assert files["graphs"] == [str(folder / name) for name in RINGS]
        assert files["variables"]["NCCL_TOPO_FILE"] == files["topology"]
        assert files["variables"]["NCCL_GRAPH_FILE"] == files["graphs"][0]
        topology = read_topology((folder / "topology.xml").read_text())
        assert list(topology.nets.values()) == ["nic1", "nic2", "nic3", "nic4"]
        channels = [read_graphs(Path(graph).read_text(), topology, 1)[0][0] for graph in files["graphs"]]
        assert {channel.enters for channel in channels} == set(topology.nets.values())
        assert {channel.leaves for channel in channels} == set(topology.nets.values())
    (line,) = document["assumed"]
    assert line.startswith(
        f"{', '.join(names)}: the hosts are only modelled: assumed that NCCL numbers its NICs"
    )


@pytest.mark.process
def test_a_shell_reads_all_variables_of_a_host(testbed, lab_file, tmp_path):
    document = testbed("env", lab_file, "--nccl", "its folder", "--json").json
    files = document["nccl"]["hosts"]["c"]
    done = subprocess.run(
        ["sh", "-c", '. "$1"; env', "sh", files["environment"]],
        capture_output=True,
        text=True,
        check=True,
        env={},
    )
    variables = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert variables.items() >= (document["variables"] | files["variables"]).items()
    assert Path(variables["NCCL_GRAPH_FILE"]) == tmp_path / "its folder" / "c" / "ring-1.xml"


def test_people_read_what_was_written_and_what_was_assumed(testbed, lab_file):
    lines = testbed("env", lab_file, "--nccl", "nccl").out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("assumed: a, b, c"))
    assert lines[at + 1] == "ring-1.xml: ranks in the order a, b, c, d, e, f, g, h, i, j, k, l"
    assert lines[-1].startswith(
        "nccl/HOST: topology.xml, ring-1.xml, ring-5.xml, ring-7.xml, ring-11.xml, env.sh of a, b"
    )


def test_a_shell_that_evaluates_the_output_gets_only_variables(testbed, lab_file):
    plain = testbed("env", lab_file, "--shell")
    done = testbed("env", lab_file, "--shell", "--nccl", "nccl")
    assert done.out == plain.out
    assert "assumed: a, b" in done.err
    assert "nccl" not in testbed("env", lab_file, "--json").json


def test_a_real_lab_that_does_not_answer_is_named(testbed, up, tmp_path):
    lab = up[0].lab
    hosts = tuple(replace(host, ssh_port=1) for host in lab.hosts)
    path = tmp_path / "real.yaml"
    path.write_text(render_lab(replace(lab, simulated=False, twins={}, hosts=hosts)))
    done = testbed("env", path, "--nccl", "nccl", "--json")
    assert done.code == 0
    assert len(done.json["nccl"]["assumed"]) == 12
    assert done.json["nccl"]["assumed"][0].startswith("a: no session with 127.")
    assert (tmp_path / "nccl" / "l" / "ring-11.xml").exists()


def test_a_folder_that_cannot_be_written_is_named(testbed, lab_file, tmp_path):
    (tmp_path / "taken").write_text("")
    done = testbed("env", lab_file, "--nccl", "taken")
    assert done.code == 1
    assert "taken" in done.err
    assert "Traceback" not in done.err

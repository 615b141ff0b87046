"""`testbed env --nccl`: the files of every host, and what the output says about them."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("sqlalchemy")

from nccl_reader import read_graphs, read_topology

from testbed.errors import HostError
from testbed.lab.hosts import fleet
from testbed.lab.hosts.fleet import CommandResult
from testbed.lab.hosts.launch import make_unfinished_error
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


def source(script, shell="sh", **environment):
    """Return the variables of a shell that has read a script, and what it printed on standard error."""
    done = subprocess.run(
        [shutil.which(shell), "-euc", '. "$1"; env', "sh", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", **environment},
    )
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line), done.stderr


@pytest.mark.process
@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("name", ["nccl", "its folder", """a'b"c $HOME `id` {d} \\ ~ * é"""])
def test_a_shell_reads_all_variables_of_a_host(testbed, lab_file, tmp_path, shell, name):
    document = testbed("env", lab_file, "--nccl", name, "--json").json
    files = document["nccl"]["hosts"]["c"]
    variables, errors = source(files["environment"], shell)
    assert variables.items() >= (document["variables"] | files["variables"]).items()
    assert Path(variables["NCCL_GRAPH_FILE"]) == tmp_path / name / "c" / "ring-1.xml"
    assert errors == ""


@pytest.mark.process
def test_files_that_were_copied_are_found_by_a_variable(testbed, lab_file, tmp_path):
    document = testbed("env", lab_file, "--nccl", "nccl", "--json").json
    copy = tmp_path / "on the host"
    shutil.move(tmp_path / "nccl", copy)
    variables, errors = source(copy / "c" / "env.sh", TESTBED_NCCL=str(copy))
    assert variables["NCCL_TOPO_FILE"] == str(copy / "c" / "topology.xml")
    assert variables["NCCL_GRAPH_FILE"] == str(copy / "c" / "ring-1.xml")
    assert errors == ""
    variables, errors = source(copy / "c" / "env.sh")
    topology = document["nccl"]["hosts"]["c"]["topology"]
    assert variables["NCCL_TOPO_FILE"] == topology
    assert errors == f"{topology} cannot be read: set TESTBED_NCCL to the folder that contains c/env.sh\n"


def test_graphs_of_an_earlier_topology_are_removed(testbed, lab_file, tmp_path):
    assert testbed("env", lab_file, "--nccl", "nccl").code == 0
    (tmp_path / "nccl" / "a" / "ring-notes.txt").write_text("mine")
    done = testbed(
        "env", lab_file, "--demand", "12:64000000", "--demand", "2:64000000", "--nccl", "nccl", "--json"
    )
    rings = {ring["graph"] for ring in done.json["nccl"]["rings"]}
    assert rings != set(RINGS)
    names = {path.name for path in (tmp_path / "nccl" / "a").iterdir()}
    assert names == {"topology.xml", *rings, "env.sh", "ring-notes.txt"}


class SlowHostFleet:
    """A fleet that has no session with host l; host b does not end in time, and host c has no room."""

    def __init__(self, lab, *, skip_unreachable):
        assert skip_unreachable
        self.hosts = lab.hosts[:11]
        self.unreachable = {"l": "no session"}

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def put(self, files, *, hosts=None):
        if hosts is None or "c" in hosts:
            raise HostError("copying files failed on c: no space", reasons={"c": "no space"})
        return ".cache/x"

    def run(self, commands, *, stdin=None, timeout_s=30.0):
        if "b" in commands:
            raise make_unfinished_error({"b": TimeoutError()}, timeout_s)
        document = {"arch": "x86_64", "affinity": {}, "gpus": []}
        document["processor"] = {"vendor": "AuthenticAMD", "family": "25", "model": "1"}
        document["nics"] = {f"nic{n}": {"index": n, "path": []} for n in (1, 2, 3, 4)}
        return {host: CommandResult(host, 0, json.dumps(document), "") for host in commands}


def test_a_slow_host_does_not_hide_the_hardware_of_the_others(testbed, up, tmp_path, monkeypatch):
    monkeypatch.setattr(fleet, "SshFleet", SlowHostFleet)
    path = tmp_path / "real.yaml"
    path.write_text(render_lab(replace(up[0].lab, simulated=False, twins={})))
    lines = testbed("env", path, "--nccl", "nccl", "--json").json["nccl"]["assumed"]
    starts = {line.partition(": assumed that")[0] for line in lines if "in the order of the lab file" in line}
    assert starts == {"b: not finished after 30 s", "c: no space", "l: no session"}
    names = "nic1, nic2, nic3, nic4 have no PCI device"
    assert f"a, d, e, f, g, h, i, j, k: {names}: attached to the processor, as NCCL assumes" in lines


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

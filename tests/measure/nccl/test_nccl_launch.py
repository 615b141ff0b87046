"""Starting real nccl-tests: environment and commands are pure; without GPU or program it says why not."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("asyncssh")

from testbed.errors import CollectiveError
from testbed.lab.hosts.fleet import CommandResult
from testbed.lab.model import Lab, LabHost, LinkClass
from testbed.measure.nccl.launch import (
    NcclSettings,
    NcclTest,
    explain_missing_requirements,
    find_nccl_hosts,
    import_nccl,
    make_find_command,
    make_mpirun_command,
    make_nccl_environment,
    make_program_arguments,
    parse_nccl_host,
    run_nccl,
)
from testbed.measure.nccl.table import make_table_document

OUTPUT = (Path(__file__).parent / "data" / "all_reduce_2026.txt").read_text()
GPU = "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)"
FOUND = f"{GPU}\nprogram=/opt/nccl-tests/build/all_reduce_perf\nmpirun=/usr/bin/mpirun\n"
ROCE = NcclSettings("IB", ("qedr0", "qedr1", "qedr2", "qedr3"), channels=4)


def lab(*names: str) -> Lab:
    hosts = tuple(
        LabHost(name, IPv4Address(f"10.9.0.{place}"), IPv4Address(f"10.100.{place}.100"), (), "python3")
        for place, name in enumerate(names, start=11)
    )
    link = LinkClass(25_000.0, 25.0, 9000, 0.0)
    return Lab("real", Path("lab.yaml"), False, IPv4Network("10.9.0.0/24"), hosts, (), {}, link, Path("key"))


class ScriptedFleet:
    """Answers each command from a table of beginnings; in tests only."""

    def __init__(self, hosts: tuple[LabHost, ...], answers: Mapping[str, CommandResult]) -> None:
        self.hosts = hosts
        self.answers = answers
        self.asked: list[tuple[str, str]] = []

    def run(self, commands, *, stdin=None, timeout_s=30.0):
        self.asked.extend(commands.items())
        return {host: self.answer(host, command) for host, command in commands.items()}

    def answer(self, host: str, command: str) -> CommandResult:
        for start, completed in self.answers.items():
            if command.startswith(start):
                return replace(completed, host=host)
        raise AssertionError(f"unexpected command {command!r}")

    def put(self, files):
        raise AssertionError("nothing is to be copied")

    def start(self, commands):
        raise AssertionError("nothing is to be started")


def fleet_with(
    found: str, *, output: str = OUTPUT, status: int = 0, document: str | None = None
) -> ScriptedFleet:
    return ScriptedFleet(
        lab("a", "b").hosts,
        {
            "PATH=": CommandResult("", 0, found, ""),
            "/usr/bin/mpirun": CommandResult(
                "", status, output, "" if status == 0 else "mpirun: lost a daemon\n"
            ),
            "cat ": CommandResult("", 0 if document else 1, document or "", ""),
        },
    )


def test_the_environment_of_the_twelve_host_testbed():
    assert make_nccl_environment(ROCE) == {
        "NCCL_NET": "IB",
        "NCCL_IB_HCA": "=qedr0,qedr1,qedr2,qedr3",
        "NCCL_IB_GID_INDEX": "3",
        "NCCL_ALGO": "Ring",
        "NCCL_MIN_NCHANNELS": "4",
        "NCCL_MAX_NCHANNELS": "4",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,GRAPH,NET,ENV",
    }


def test_sockets_name_their_interfaces_whole_and_switch_verbs_off():
    variables = make_nccl_environment(
        NcclSettings("Socket", ("nic1", "nic2"), channels=2, preload_library="/opt/mccl/libnccl.so")
    )
    assert variables["NCCL_SOCKET_IFNAME"] == "=nic1,nic2"
    assert variables["NCCL_IB_DISABLE"] == "1"
    assert variables["LD_PRELOAD"] == "/opt/mccl/libnccl.so"
    assert "NCCL_IB_HCA" not in variables


def test_the_arguments_of_the_test():
    assert shlex.join(make_program_arguments(NcclTest())) == "-b 8 -e 134217728 -f 2 -g 1 -n 20 -w 1 -T 300"
    assert make_program_arguments(NcclTest(json_path="out.json"))[-2:] == ("-J", "out.json")


def test_the_command_starts_one_rank_a_host_each_with_its_own_environment():
    here = lab("a", "b")
    found = [replace(parse_nccl_host(CommandResult(name, 0, FOUND, "")), host=name) for name in ("a", "b")]
    variables = {"a": {"NCCL_NET": "IB"}, "b": {"NCCL_NET": "Socket"}}
    command = make_mpirun_command(here, found, variables, NcclTest(timeout_s=60))
    common, *rest = command.split(" -np ")
    assert shlex.split(common)[0] == "/usr/bin/mpirun"
    assert "--mca btl_tcp_if_include 10.9.0.0/24" in common
    assert [shlex.split(one.removesuffix(" :"))[:6] for one in rest] == [
        ["1", "-H", "10.9.0.11:1", "-x", "NCCL_NET=IB", "/opt/nccl-tests/build/all_reduce_perf"],
        ["1", "-H", "10.9.0.12:1", "-x", "NCCL_NET=Socket", "/opt/nccl-tests/build/all_reduce_perf"],
    ]


def test_what_a_host_has_is_read_from_its_answer():
    host = parse_nccl_host(CommandResult("a", 0, f"{FOUND}noise\n", ""))
    assert (host.gpu_names, host.program_path, host.mpirun_path) == (
        (GPU,),
        "/opt/nccl-tests/build/all_reduce_perf",
        "/usr/bin/mpirun",
    )
    assert "command -v all_reduce_perf" in make_find_command(NcclTest())


def test_a_host_without_anything_says_all_that_is_missing_and_what_to_do():
    found = find_nccl_hosts(fleet_with("program=\nmpirun=\n"))
    reason = explain_missing_requirements(found)
    for words in (
        "too few GPUs on any host",
        "no `all_reduce_perf` on any host",
        "MPI=1",
        "no `mpirun` on a",
    ):
        assert words in reason


def test_only_the_hosts_that_lack_something_are_named():
    found = list(find_nccl_hosts(fleet_with(FOUND)))
    assert explain_missing_requirements(found) == ""
    assert "too few GPUs on host b (" in explain_missing_requirements(
        [found[0], replace(found[1], gpu_names=())]
    )
    assert explain_missing_requirements([]) == "there are no hosts"


def test_without_gpu_nothing_is_started():
    fleet = fleet_with("program=\nmpirun=\n")
    with pytest.raises(CollectiveError, match="nccl-tests cannot run here: too few GPUs on any host"):
        run_nccl(fleet, lab("a", "b"), ROCE)
    assert all(command.startswith("PATH=") for _, command in fleet.asked)


def test_a_run_gives_table_rings_and_output():
    ring = "".join(f"h{r}:1:2 [0] NCCL INFO Ring 00 : {1 - r} -> {r} -> {1 - r}\n" for r in (0, 1))
    run = run_nccl(fleet_with(FOUND, output=ring + OUTPUT), lab("a", "b"), ROCE)
    assert len(run.table.rows) == 5
    assert run.table.source == "text"
    assert [one.order for one in run.ring_log.rings] == [(0, 1)]
    assert ring in run.output


def test_the_announced_document_counts_where_it_can_be_read():
    text_table = import_nccl(Path(__file__).parent / "data" / "all_reduce_2026.txt")
    fleet = fleet_with(FOUND, document=json.dumps(make_table_document(text_table)))
    run = run_nccl(fleet, lab("a", "b"), ROCE, NcclTest(json_path="out.json"))
    assert run.table.source == "json"
    assert run.table.rows == text_table.rows
    assert ("a", "cat out.json.0") in fleet.asked


def test_a_run_without_results_says_status_host_and_last_words():
    with pytest.raises(CollectiveError) as caught:
        run_nccl(fleet_with(FOUND, output="", status=1), lab("a", "b"), ROCE)
    assert "all_reduce_perf ended with status 1 on a and no results" in str(caught.value)
    assert "mpirun: lost a daemon" in str(caught.value)

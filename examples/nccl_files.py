"""Run an AllReduce with the NCCL files of a host, and say what NCCL made of them: nccl_files.py FOLDER [GRAPH].

python examples/nccl_files.py nccl/a                              one process per GPU of this machine
torchrun ... examples/nccl_files.py nccl/a                        on each host of a lab with its own folder
torchrun ... examples/nccl_files.py nccl/a ring-5.xml             another ring; start the hosts in its order

FOLDER is a folder that `testbed env LAB --nccl DIR` wrote. Exit code 0 if NCCL used the files as they are, else 1. NICs
are compared only between hosts: inside one machine NCCL uses none. Needs GPUs and torch, and nothing else.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

INFO = re.compile(r"NCCL (?P<level>INFO|WARN) (?P<text>.*\S)")
LOADED = re.compile(r"Search 0 : (\d+) channels loaded from XML graph")
PATTERN = re.compile(r"Pattern 4, crossNic (\d), nChannels (\d+),")
RENUMBERED = re.compile(r"TOPO/NET : Changing \S+ dev index from (\d+) to (\d+)")
CONNECTED = re.compile(
    r"Channel (\d+)/\d+ : (\d+)\[\d+\] -> (\d+)\[\d+\] \[(send|receive)\] via NET/\w+/(\d+)"
)
RING = re.compile(r"Channel (\d+)/\d+ : +(\d[\d ]*)$")


@dataclass(frozen=True)
class Channel:
    """A channel of a graph file: numbers of the NICs by which the ring enters and leaves, and GPUs in order."""

    nets: tuple[int, ...]
    gpus: tuple[int, ...]


@dataclass(frozen=True)
class Line:
    """A sentence of the report, and whether it is as the files have it; None for information."""

    text: str
    is_as_asked: bool | None = None


def read_channels(text: str) -> list[Channel]:
    """Return the channels of the ring in a graph file, or in a dump of NCCL, which has no NICs inside one machine."""
    graphs = [graph for graph in ET.fromstring(text) if graph.get("id") == "0"]  # noqa: S314  testbed or NCCL wrote it
    return [
        Channel(
            tuple(int(each.get("dev", ""), 16) for each in channel.iter("net")),
            tuple(int(each.get("dev", ""), 16) for each in channel.iter("gpu")),
        )
        for graph in graphs
        for channel in graph
    ]


def read_nics(text: str) -> dict[int, str]:
    """Return the names of the NICs in a topology file, by number."""
    nets = ET.fromstring(text).iter("net")  # noqa: S314  testbed or NCCL wrote it
    return {int(net.get("dev", ""), 0): net.get("name", "") for net in nets}


def judge(
    log: str, rank: int, topology: str, graph: str, topology_dump: str, graph_dump: str
) -> Iterator[Line]:
    """Yield what NCCL made of a topology and a graph file, from the log and the dumps of one rank; '' for no dump."""
    entries = [match for match in map(INFO.search, log.splitlines()) if match]
    lines = [entry["text"] for entry in entries]
    asked, nics = read_channels(graph), read_nics(topology)
    for text in dict.fromkeys(entry["text"] for entry in entries if entry["level"] == "WARN"):
        yield Line(f"NCCL warns: {text}", is_as_asked=False)
    has_topology = any(text.startswith("Loading topology file") for text in lines)
    yield Line(f"topology file: {'read' if has_topology else 'not read'}", has_topology)
    for before, after in dict.fromkeys(match.groups() for match in map(RENUMBERED.search, lines) if match):
        yield Line(f"NIC {before} of the file has number {after} in NCCL", is_as_asked=False)
    loaded = [int(match[1]) for match in map(LOADED.search, lines) if match]
    yield Line(
        f"graph file: ring channels read: {loaded[0]}, in the file: {len(asked)}"
        if loaded
        else "graph file: not read",
        bool(loaded) and loaded[0] == len(asked),
    )
    pattern = next((match for match in map(PATTERN.search, lines) if match), None)
    if pattern:
        yield Line(
            f"channels of the ring: {pattern[2]}, crossnic {pattern[1]}", int(pattern[2]) == len(asked)
        )
    yield from judge_dumps(asked, nics, topology_dump, graph_dump)
    yield from judge_connections(lines, rank, asked, nics)
    for number, ranks in dict.fromkeys(match.groups() for match in map(RING.search, lines) if match):
        yield Line(f"channel {int(number)}: ranks in the order {' '.join(ranks.split())}")


def judge_dumps(
    asked: list[Channel], nics: dict[int, str], topology_dump: str, graph_dump: str
) -> Iterator[Line]:
    """Compare what NCCL wrote of its topology and its ring with the files."""
    if topology_dump:
        used = read_nics(topology_dump)
        for number, name in sorted(nics.items()):
            yield Line(
                f"NIC {number} is {used.get(number, 'absent')}, in the file {name}", used.get(number) == name
            )
    else:
        yield Line("NCCL wrote no topology", is_as_asked=False)
    channels = read_channels(graph_dump) if graph_dump else []
    if not channels:
        yield Line("NCCL wrote no ring", is_as_asked=False)
    for number, channel in enumerate(channels):
        wanted = asked[number] if number < len(asked) else None
        is_same = wanted is not None and wanted.gpus == channel.gpus and channel.nets in ((), wanted.nets)
        names = [nics.get(net, str(net)) for net in channel.nets]
        gpus = f"GPUs {' '.join(map(str, channel.gpus))}"
        yield Line(f"channel {number}: {gpus}, {'NICs ' + ' '.join(names) if names else 'no NICs'}", is_same)


def judge_connections(
    lines: list[str], rank: int, asked: list[Channel], nics: dict[int, str]
) -> Iterator[Line]:
    """Compare the NICs over which this rank sends and receives with those of its channels.

    With one GPU on a host, NCCL uses the first NIC of a channel in both directions.
    """
    for match in filter(None, map(CONNECTED.search, lines)):
        number, source, target, direction, net = (
            int(match[1]),
            int(match[2]),
            int(match[3]),
            match[4],
            int(match[5]),
        )
        if not asked or rank != (source if direction == "send" else target):
            continue
        channel = asked[number % len(asked)]
        is_entry = direction == "receive" or len(channel.gpus) == 1
        words = f"to rank {target}" if direction == "send" else f"from rank {source}"
        yield Line(
            f"channel {number}: {direction}s {words} over {nics.get(net, net)}",
            net == channel.nets[0 if is_entry else -1],
        )


def report(folder: Path, graph: str, scratch: Path, rank: int) -> bool:
    """Print the report of one rank; return whether NCCL used the files as they are."""
    texts = [scratch / name for name in (f"topology-{rank}.xml", f"graph-{rank}.xml")]
    dumps = [path.read_text() if path.exists() else "" for path in texts]
    log = "".join(path.read_text() for path in sorted(scratch.glob(f"log-{rank}.*")))
    files = [(folder / name).read_text() for name in ("topology.xml", graph)]
    lines = list(judge(log, rank, *files, *dumps))
    marks = {True: "yes  ", False: "NO   ", None: "     "}
    sys.stdout.write("".join(f"rank {rank}: {marks[line.is_as_asked]}{line.text}\n" for line in lines))
    return all(line.is_as_asked is not False for line in lines)


def read_settings(text: str) -> dict[str, str]:
    """Return NCCL's variables in the text of `env.sh`, but those with paths."""
    lines = (line for line in text.splitlines() if line.startswith("export NCCL_"))
    return dict(shlex.split(line)[1].split("=", 1) for line in lines)


def run_rank(folder: Path, graph: str) -> int:
    """Run one rank of an AllReduce, which the environment names as torchrun does."""
    rank, size, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        os.environ |= read_settings((folder / "env.sh").read_text())
        os.environ |= {
            "NCCL_TOPO_FILE": str(folder / "topology.xml"),
            "NCCL_GRAPH_FILE": str(folder / graph),
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH,NET",
            "NCCL_DEBUG_FILE": str(scratch / f"log-{rank}.%p"),
            "NCCL_TOPO_DUMP_FILE": str(scratch / f"topology-{rank}.xml"),
            "NCCL_TOPO_DUMP_FILE_RANK": str(rank),
            "NCCL_GRAPH_DUMP_FILE": str(scratch / f"graph-{rank}.xml"),
            "NCCL_GRAPH_DUMP_FILE_RANK": str(rank),
        }
        import torch
        from torch import distributed

        torch.cuda.set_device(local)
        failure = ""
        try:
            distributed.init_process_group("nccl")
            tensor = torch.full((1 << 20,), rank + 1.0, device="cuda")
            distributed.all_reduce(tensor)
            torch.cuda.synchronize()
            if tensor[0].item() != size * (size + 1) / 2:
                failure = f"the sum is {tensor[0].item()}"
            distributed.destroy_process_group()
        except (RuntimeError, ValueError) as error:
            failure = str(error).splitlines()[0]
        if failure:
            sys.stdout.write(f"rank {rank}: NO   AllReduce failed: {failure}\n")
        is_as_asked = report(folder, graph, scratch, rank)
    return 0 if is_as_asked and not failure else 1


def run_all(folder: Path, graph: str) -> int:
    """Start a rank per GPU of this machine, and return 0 if all of them return 0."""
    import torch

    gpus = torch.cuda.device_count()
    if gpus == 0:
        sys.exit("no GPU on this machine: run this on one that has some")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(gpus)}
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, str(folder), graph],
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(gpus)
    ]
    return max(int(rank.wait() != 0) for rank in ranks)


def main(arguments: list[str]) -> int:
    """Return the exit code."""
    if not 1 <= len(arguments) <= 2:
        sys.exit(__doc__)
    folder = Path(arguments[0]).absolute()
    if not (folder / "topology.xml").exists():
        sys.exit(f"{folder}: no topology.xml: write it with `testbed env LAB --nccl DIR`, and give DIR/HOST")
    match = re.search(r"^NCCL_GRAPH_FILE=.*/(ring-\d+\.xml);", (folder / "env.sh").read_text(), re.MULTILINE)
    if match is None:
        sys.exit(f"{folder}/env.sh: no NCCL_GRAPH_FILE: write it with `testbed env LAB --nccl DIR`")
    graph = arguments[1] if len(arguments) > 1 else match[1]
    return run_rank(folder, graph) if "RANK" in os.environ else run_all(folder, graph)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

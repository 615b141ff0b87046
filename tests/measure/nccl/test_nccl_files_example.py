"""The script that says what NCCL made of its files, on logs and dumps written here by the formats in NCCL's source.

No GPU wrote these texts: the formats are those of `src/graph/search.cc`, `src/graph/topo.cc`, `src/graph/rings.cc`,
`src/transport/net.cc` and `src/debug.cc` of NCCL 2.30.7.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from testbed.lab.hosts.nccl_files import NCCL_SETTINGS, NcclRing, render_environment

SCRIPT = Path(__file__).resolve().parents[3] / "examples" / "nccl_files.py"


@pytest.fixture(scope="module")
def script():
    """Return the script as a module."""
    specification = importlib.util.spec_from_file_location("nccl_files_example", SCRIPT)
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    yield module
    del sys.modules[specification.name]


TOPOLOGY = """<system version="1">
  <cpu numaid="0" arch="x86_64" vendor="AuthenticAMD">
    <nic>
      <net name="nic1" dev="0" speed="100"/>
      <net name="nic2" dev="1" speed="100"/>
    </nic>
  </cpu>
</system>
"""


def graph_of(gpus, *, is_dump=False, nets=(1, 0), channels=1):
    """Return a graph file; a dump writes 0 without prefix, ranks, and graphs that NCCL searched."""
    number = (lambda value: f"{value:#x}" if value else "0") if is_dump else hex
    inside = [f'<net dev="{number(nets[0])}"/>'] if nets else []
    inside += [f'<gpu dev="{number(gpu)}" rank="{gpu}"/>' for gpu in gpus]
    inside += [f'<net dev="{number(nets[1])}"/>'] if nets else []
    channel = f"<channel>\n{''.join(inside)}\n</channel>\n"
    values = (
        'pattern="4" crossnic="1" speedintra="0.0125" speedinter="0.0125" typeintra="LOC" typeinter="SYS"'
    )
    ring = f'<graph id="0" {values} nchannels="{channels}" samechannels="1">\n{channel * channels}</graph>\n'
    searched = '<graph id="3" nchannels="0"/>\n' if is_dump else ""
    return f'<graphs version="1">\n{ring}{searched}</graphs>\n'


def dump_of(names):
    """Return a dump of a topology, with more elements and attributes than the file."""
    nets = "".join(
        f'        <net name="{name}" keep="1" dev="{number}" speed="100" port="0" guid="0x{number}" net="1"/>\n'
        for number, name in enumerate(names)
    )
    gpu = '<pci busid="0000:19:00.0" class="0x030200"><gpu dev="0" sm="90" rank="0" gdr="0" mlopart="-1"/></pci>'
    return f'<system version="1">\n<cpu host_hash="0x5d" numaid="0">\n{gpu}\n<nic>\n{nets}</nic>\n</cpu>\n</system>\n'


def log_of(*lines, level="INFO"):
    """Return lines of NCCL's log; a warning has file, line and function."""
    place = "" if level == "INFO" else "src/graph/xml.cc:342 (ncclTopoXmlLoadSystem) "
    return "".join(f"host0:1000:2000 [0] {place}NCCL {level} {line}\n" for line in lines)


READ = (
    "NCCL_TOPO_FILE set by environment to /lab/a/topology.xml",
    "Loading topology file /lab/a/topology.xml",
    "Loading unnamed topology",
)
RING = (
    "Search 0 : 1 channels loaded from XML graph",
    "Pattern 4, crossNic 1, nChannels 1, bw 0.012500/0.012500, type LOC/SYS, sameChannels 1",
    " 0 : NET/0-1 GPU/0-19000 NET/0-0",
    "Search 1 : 1 channels loaded from XML graph",
    "Pattern 3, crossNic 1, nChannels 1, bw 0.012500/0.012500, type LOC/SYS, sameChannels 1",
)
TWO = ("Channel 00/02 :  0  1", "Channel 01/02 :  0  1")


def sent(channel, source, target, direction, net):
    return f"Channel {channel:02d}/0 : {source}[0] -> {target}[0] [{direction}] via NET/Socket/{net}"


def judge(script, log, *, gpus=(0,), topology_dump=None, graph_dump=None):
    """Return the sentences that are as asked, those that are not, and information, as rank 0."""
    lines = list(
        script.judge(
            log,
            0,
            TOPOLOGY,
            graph_of(gpus),
            dump_of(["nic1", "nic2"]) if topology_dump is None else topology_dump,
            graph_of(gpus, is_dump=True) if graph_dump is None else graph_dump,
        )
    )
    return [[line.text for line in lines if line.is_as_asked is kind] for kind in (True, False, None)]


def test_files_that_nccl_used_as_they_are(script):
    connections = [sent(n, 1, 0, "receive", 1) for n in (0, 1)] + [sent(n, 0, 1, "send", 1) for n in (0, 1)]
    yes, no, information = judge(script, log_of(*READ, *RING, *TWO, *connections))
    assert no == []
    assert yes == [
        "topology file: read",
        "graph file: ring channels read: 1, in the file: 1",
        "channels of the ring: 1, crossnic 1",
        "NIC 0 is nic1, in the file nic1",
        "NIC 1 is nic2, in the file nic2",
        "channel 0: GPUs 0, NICs nic2 nic1",
        "channel 0: receives from rank 1 over nic2",
        "channel 1: receives from rank 1 over nic2",
        "channel 0: sends to rank 1 over nic2",
        "channel 1: sends to rank 1 over nic2",
    ]
    assert information == ["channel 0: ranks in the order 0 1", "channel 1: ranks in the order 0 1"]


def test_several_gpus_leave_by_the_last_nic(script):
    log = log_of(*READ, *RING, sent(0, 0, 2, "send", 0), sent(0, 1, 2, "send", 1))
    assert judge(script, log, gpus=(1, 0))[1] == []
    wrong = log_of(*READ, *RING, sent(0, 0, 2, "send", 1))
    assert judge(script, wrong, gpus=(1, 0))[1] == ["channel 0: sends to rank 2 over nic2"]


def test_inside_one_machine_nccl_uses_no_nics(script):
    yes, no, _ = judge(script, log_of(*READ, *RING), graph_dump=graph_of((0,), is_dump=True, nets=()))
    assert no == []
    assert yes[-1] == "channel 0: GPUs 0, no NICs"


def without(lines, word):
    return [line for line in lines if word not in line]


@pytest.mark.parametrize(
    ("log", "options", "sentence"),
    [
        (log_of(*RING), {}, "topology file: not read"),
        (log_of(*READ, *without(RING, "Search 0")), {}, "graph file: not read"),
        (
            log_of(*READ, *(line.replace("Search 0 : 1", "Search 0 : 2") for line in RING)),
            {},
            "graph file: ring channels read: 2, in the file: 1",
        ),
        (
            log_of(*READ, *(line.replace("nChannels 1", "nChannels 4") for line in RING)),
            {},
            "channels of the ring: 4, crossnic 1",
        ),
        (
            log_of(*READ, "TOPO/NET : Changing Socket dev index from 0 to 1", *RING),
            {},
            "NIC 0 of the file has number 1 in NCCL",
        ),
        (
            log_of(*READ, *RING) + log_of("XML Topology has wrong version 2, 1 needed", level="WARN"),
            {},
            "NCCL warns: XML Topology has wrong version 2, 1 needed",
        ),
        (log_of(*READ, *RING), {"topology_dump": dump_of(["nic1"])}, "NIC 1 is absent, in the file nic2"),
        (log_of(*READ, *RING), {"topology_dump": ""}, "NCCL wrote no topology"),
        (log_of(*READ, *RING), {"graph_dump": ""}, "NCCL wrote no ring"),
        (
            log_of(*READ, *RING),
            {"graph_dump": graph_of((0,), is_dump=True, nets=(0, 1))},
            "channel 0: GPUs 0, NICs nic1 nic2",
        ),
        (
            log_of(*READ, *RING),
            {"graph_dump": graph_of((0,), is_dump=True, channels=2)},
            "channel 1: GPUs 0, NICs nic2 nic1",
        ),
        (
            log_of(*READ, *RING, sent(0, 1, 0, "receive", 0)),
            {},
            "channel 0: receives from rank 1 over nic1",
        ),
    ],
)
def test_what_nccl_did_otherwise_is_said(script, log, options, sentence):
    assert judge(script, log, **options)[1] == [sentence]


def test_settings_are_read_from_the_script_that_is_written(script):
    rings = (NcclRing(5, (0, 1), ()),)
    text = render_environment({"MASTER_ADDR": "a"}, """/it's "a" {folder}""", "a", rings)
    assert script.read_settings(text) == NCCL_SETTINGS


def test_the_graph_is_that_of_the_script_or_the_one_that_is_given(script, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(script, "run_rank", lambda folder, graph: (folder, graph))
    (tmp_path / "topology.xml").write_text(TOPOLOGY)
    (tmp_path / "env.sh").write_text("export NCCL_NET=Socket\n")
    with pytest.raises(SystemExit, match="no NCCL_GRAPH_FILE"):
        script.main([str(tmp_path)])
    rings = (NcclRing(5, (0, 1), ()),)
    (tmp_path / "env.sh").write_text(render_environment({}, "/it's a folder", "a", rings))
    assert script.main([str(tmp_path)]) == (tmp_path, "ring-5.xml")
    assert script.main([str(tmp_path), "ring-7.xml"]) == (tmp_path, "ring-7.xml")


def test_a_folder_without_files_is_refused(script, tmp_path):
    with pytest.raises(SystemExit, match="testbed env LAB --nccl DIR"):
        script.main([str(tmp_path)])
    with pytest.raises(SystemExit, match=r"nccl_files\.py FOLDER"):
        script.main([])


def test_the_report_of_a_rank_is_read_from_its_log_and_dumps(script, tmp_path, capsys):
    (tmp_path / "topology.xml").write_text(TOPOLOGY)
    (tmp_path / "ring-1.xml").write_text(graph_of((0,)))
    (tmp_path / "log-0.77").write_text(log_of(*READ, *RING))
    (tmp_path / "topology-0.xml").write_text(dump_of(["nic1", "nic2"]))
    (tmp_path / "graph-0.xml").write_text(graph_of((0,), is_dump=True))
    assert script.report(tmp_path, "ring-1.xml", tmp_path, 0)
    assert "rank 0: yes  graph file: ring channels read: 1, in the file: 1\n" in capsys.readouterr().out
    assert not script.report(tmp_path, "ring-1.xml", tmp_path, 1)
    assert "rank 1: NO   topology file: not read\n" in capsys.readouterr().out

"""Files of NCCL: every file of every lab is one that NCCL reads, and its rings use the links of the plan."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from libraries import skip_without

skip_without("pydantic")

from nccl_reader import ReaderError, ReadTopology, read_graphs, read_topology, read_tree

from testbed.design.model import Nic, Topology, Wiring
from testbed.design.topology.strides import list_rings
from testbed.errors import HostError, TopologyError
from testbed.lab.hosts.fleet import CommandResult
from testbed.lab.hosts.nccl_files import (
    NCCL_SETTINGS,
    TOPOLOGY_FILE,
    find_rings,
    make_files,
    make_variables,
    parse_hardware,
    read_hardware,
)
from testbed.lab.inventory import parse_lab
from testbed.node import pci
from testbed.operate.design import build_design

WORKING = {
    "class": "0x020000",
    "vendor": "0x15b3",
    "device": "0x1017",
    "subsystem_vendor": "",
    "subsystem_device": "",
}


def device(bus, function=0, *, numa="0", kind="0x020000", speed="16.0 GT/s PCIe", width=16):
    values = {
        "address": f"0000:{bus:02x}:00.{function}",
        "numa": numa,
        "link_speed": speed,
        "link_width": width,
    }
    return WORKING | values | {"class": kind}


def of(lab, design, documents=None):
    """Return the files of a lab; `documents` are what hosts printed."""
    hardware = {host: parse_hardware(document) for host, document in (documents or {}).items()}
    return make_files(lab, design.topology, design.wiring, design.routes, hardware, {})


def lab_of(text, gpus=None):
    """Return a lab whose hosts have GPUs, divided evenly among the NICs."""
    lab = parse_lab(text, "x.yaml")
    if gpus is None:
        return lab
    hosts = []
    for host in lab.hosts:
        nics = tuple(
            replace(nic, gpu=number * gpus // len(host.nics)) for number, nic in enumerate(host.nics)
        )
        hosts.append(replace(host, gpus=gpus, nics=nics))
    return replace(lab, hosts=tuple(hosts))


def check_host(host, texts, rings, gpus):
    """Return the topology of a host and the channels of each ring, as NCCL reads them."""
    topology = read_topology(texts[TOPOLOGY_FILE])
    assert set(topology.nets.values()) == {nic.name for nic in host.nics}
    channels = {}
    for ring in rings:
        graphs = read_graphs(texts[ring.graph_file_name], topology, gpus)
        assert graphs[0] == graphs[1]
        channels[ring.graph_file_name] = graphs[0]
    return topology, channels


def check_rings(lab, design, files, gpus):
    """Check that each channel leaves a host by the transmitter of the link into the next, and return the links used."""
    read = {
        host.name: check_host(host, files.texts_by_host[host.name], files.rings, gpus)[1]
        for host in lab.hosts
    }
    used = []
    for ring in files.rings:
        for number in range(len(ring.channels)):
            for here, there in zip(ring.order, (*ring.order[1:], ring.order[0]), strict=True):
                leaving = read[lab.hosts[here].name][ring.graph_file_name][number].leaves
                entering = read[lab.hosts[there].name][ring.graph_file_name][number].enters
                source = Nic(here, [nic.name for nic in lab.hosts[here].nics].index(leaving))
                link = design.wiring.link_by_transmitter[source]
                assert link.target == Nic(there, [nic.name for nic in lab.hosts[there].nics].index(entering))
                used.append(link)
    return used


# ------------------------------------------------------------------------------ labs of every kind


@st.composite
def host_documents(draw, nics, gpus):
    """Draw what a host prints: a PCI tree of one or two NUMA nodes, its NICs in any order, its GPUs."""
    numas = draw(st.sampled_from([["0"], ["0", "1"], ["-1"]]))
    is_switched = draw(st.booleans())
    buses = iter(range(0x20, 0xF0))
    bridges = {numa: device(0x10 + int(numa) % 16, numa=numa, kind="0x060400") for numa in numas}

    def path(kind):
        numa = draw(st.sampled_from(numas))
        speed = draw(st.sampled_from(["16.0 GT/s PCIe", "32.0 GT/s PCIe", "8 GT/s", "Unknown", ""]))
        last = device(next(buses), numa=numa, kind=kind, speed=speed, width=draw(st.sampled_from([0, 8, 16])))
        return [bridges[numa], last] if is_switched else [last]

    indices = draw(st.permutations(range(2, 2 + nics)))
    paths = []
    for _ in range(nics):
        kind = draw(st.sampled_from(["device", "device", "second port", "none"]))
        paths.append(
            paths[-1] if kind == "second port" and paths else [] if kind == "none" else path("0x020000")
        )
    return {
        "arch": draw(st.sampled_from(["x86_64", "aarch64", "riscv64"])),
        "processor": draw(
            st.sampled_from(
                [
                    None,
                    {"vendor": "GenuineIntel", "family": "6", "model": "143"},
                    {"vendor": "AuthenticAMD", "family": "25", "model": "1"},
                    {"vendor": "HygonGenuine", "family": "24", "model": "0"},
                ]
            )
        ),
        "affinity": {"0": "ffffffff,00000000", "1": ",".join(["ffffffff"] * 40)},
        "nics": {
            f"nic{number + 1}": {"index": indices[number], "path": paths[number]} for number in range(nics)
        },
        "gpus": [path("0x030200") for _ in range(gpus)],
    }


seen: Counter[str] = Counter()


@settings(max_examples=60, deadline=None)
@given(st.data())
def check_labs(lab_text, data):
    nodes, degree = data.draw(st.integers(2, 12)), data.draw(st.integers(1, 4))
    gpus = data.draw(st.sampled_from([1, 2, 4, 12]))
    simplex = data.draw(st.booleans())
    lab = lab_of(lab_text(nodes, degree), gpus)
    try:
        design = build_design(lab, simplex=simplex)
    except TopologyError:
        assume(False)
    documents = {
        host.name: data.draw(host_documents(degree, data.draw(st.sampled_from([gpus, gpus, 0]))))
        for host in lab.hosts[: data.draw(st.integers(0, 2))]
    }
    files = of(lab, design, documents)
    used = check_rings(lab, design, files, gpus)
    whole = list_rings(design.topology)
    assert sum(len(ring.channels) for ring in files.rings) == len(whole)
    if not any("no links of their own" in line for line in files.assumptions):
        assert len(set(used)) == len(used) == nodes * len(whole)
    for host in lab.hosts:
        topology = read_topology(files.texts_by_host[host.name][TOPOLOGY_FILE])
        assert set(topology.speeds.values()) == {100}
        spoken = [line for line in files.assumptions if host.name in line.partition(":")[0].split(", ")]
        document = documents.get(host.name)
        if document is None:
            assert [line for line in spoken if "it was not read" in line] != []
            assert (topology.gpus, topology.address_of) == ({}, {})
            continue
        paths = {name: nic["path"] for name, nic in document["nics"].items()}
        assert topology.address_of == {name: path[-1]["address"] for name, path in paths.items() if path}
        for name, path in paths.items():
            assert any(name in re.split("[:, ]+", line) for line in spoken) == (not path)
        by_index = sorted(document["nics"], key=lambda name: document["nics"][name]["index"])
        assert [topology.nets[number] for number in range(degree)] == by_index
        addresses = [path[-1]["address"] for path in document["gpus"]]
        assert topology.gpus == dict(enumerate(addresses))
        seen["bridges"] += "0x060400" in files.texts_by_host[host.name][TOPOLOGY_FILE]
        seen["two NUMA nodes"] += files.texts_by_host[host.name][TOPOLOGY_FILE].count("<cpu") == 2
        seen["two ports"] += len(set(topology.address_of.values())) < len(topology.address_of)
        seen["another order"] += by_index != sorted(by_index)
        seen["GPUs of the host"] += topology.gpus != {}
    seen["one-way"] += simplex
    seen["parallel rings"] += any(len(ring.channels) > 1 for ring in files.rings)
    seen["several rings"] += len(files.rings) > 1
    seen["several GPUs"] += gpus > 1
    seen["numbers beyond 9"] += gpus > 10


@pytest.mark.slow
def test_every_file_of_every_lab_is_one_that_nccl_reads_and_rings_use_the_links_of_the_plan(small_lab_text):
    check_labs(small_lab_text)
    assert min(seen.values()) >= 3, seen
    assert len(seen) == 10


# ------------------------------------------------------------------------------ one lab in full


def test_the_files_of_a_host_whose_devices_are_known_in_full(small_lab_text):
    lab = lab_of(small_lab_text(3, 2), 2)
    design = build_design(lab)
    document = {
        "arch": "x86_64",
        "processor": {"vendor": "GenuineIntel", "family": "6", "model": "143"},
        "affinity": {"0": "ff", "1": "ff00"},
        "nics": {
            "nic1": {"index": 7, "path": [device(0x17, numa="1")]},
            "nic2": {"index": 3, "path": [device(0x5A, numa="0")]},
        },
        "gpus": [[device(0x1A, numa="0", kind="0x030200")], [device(0x99, numa="1", kind="0x030200")]],
    }
    files = of(lab, design, {"a": document})
    attributes = 'vendor="0x15b3" device="0x1017" link_speed="16.0 GT/s PCIe" link_width="16"'
    processor = 'arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143"'
    assert files.texts_by_host["a"][TOPOLOGY_FILE] == (
        '<system version="1">\n'
        f'  <cpu numaid="0" affinity="ff" {processor}>\n'
        f'    <pci busid="0000:1a:00.0" class="0x030200" {attributes}>\n'
        '      <gpu dev="0"/>\n'
        "    </pci>\n"
        f'    <pci busid="0000:5a:00.0" class="0x020000" {attributes}>\n'
        "      <nic>\n"
        '        <net name="nic2" dev="0" speed="100"/>\n'
        "      </nic>\n"
        "    </pci>\n"
        "  </cpu>\n"
        f'  <cpu numaid="1" affinity="ff00" {processor}>\n'
        f'    <pci busid="0000:17:00.0" class="0x020000" {attributes}>\n'
        "      <nic>\n"
        '        <net name="nic1" dev="1" speed="100"/>\n'
        "      </nic>\n"
        "    </pci>\n"
        f'    <pci busid="0000:99:00.0" class="0x030200" {attributes}>\n'
        '      <gpu dev="1"/>\n'
        "    </pci>\n"
        "  </cpu>\n"
        "</system>\n"
    )
    speeds = 'speedintra="0.0125" speedinter="0.0125" latencyinter="0" typeintra="SYS" typeinter="SYS"'
    channel = (
        "    <channel>\n"
        '      <net dev="0x0"/>\n'
        '      <gpu dev="0x1"/>\n'
        '      <gpu dev="0x0"/>\n'
        '      <net dev="0x1"/>\n'
        "    </channel>\n"
    )
    # Host a sends to b by nic1 and receives from c by nic2: NCCL numbers them 1 and 0.
    assert design.wiring.link_by_transmitter[Nic(0, 0)].target.node == 1
    assert files.texts_by_host["a"]["ring-1.xml"] == (
        '<graphs version="1">\n'
        f'  <graph id="0" pattern="4" crossnic="1" nchannels="1" {speeds} samechannels="1">\n{channel}  </graph>\n'
        f'  <graph id="1" pattern="3" crossnic="1" nchannels="1" {speeds} samechannels="1">\n{channel}  </graph>\n'
        "</graphs>\n"
    )
    assert [line for line in files.assumptions if line.startswith("a")] == []
    assert make_variables("/lab/a", files.rings) == {
        "NCCL_TOPO_FILE": "/lab/a/topology.xml",
        "NCCL_GRAPH_FILE": "/lab/a/ring-1.xml",
        **NCCL_SETTINGS,
    }


def test_numbers_of_a_graph_file_are_hexadecimal(small_lab_text):
    lab = lab_of(small_lab_text(2, 1), 12)
    files = of(lab, build_design(lab))
    read = read_topology(files.texts_by_host["a"][TOPOLOGY_FILE])
    (channel,) = read_graphs(files.texts_by_host["a"]["ring-1.xml"], read, 12)[0]
    assert channel.gpus == tuple(range(12))
    assert '<gpu dev="0xb"/>' in files.texts_by_host["a"]["ring-1.xml"]


def test_the_path_between_a_gpu_and_its_nic_is_as_long_as_the_host_shows(small_lab_text):
    lab = lab_of(small_lab_text(2, 1), 1)
    bridge = device(0x10, kind="0x060400")
    paths = {
        "PXB": ([bridge, device(0x20)], [bridge, device(0x21, kind="0x030200")]),
        "PHB": ([device(0x20)], [device(0x21, kind="0x030200")]),
        "SYS": ([device(0x20)], [device(0x21, numa="1", kind="0x030200")]),
    }
    for word, (nic, gpu) in paths.items():
        document = {"arch": "aarch64", "processor": None, "affinity": {}, "gpus": [gpu]}
        document["nics"] = {"nic1": {"index": 2, "path": nic}}
        (text,) = (
            text
            for name, text in of(lab, build_design(lab), {"a": document}).texts_by_host["a"].items()
            if name != TOPOLOGY_FILE
        )
        assert re.findall('typeinter="(.*?)"', text) == [word, word]


def test_what_a_host_does_not_say_is_said(small_lab_text):
    lab = lab_of(small_lab_text(2, 2), 4)
    document = {
        "arch": "x86_64",
        "processor": {"vendor": "HygonGenuine", "family": "24", "model": "0"},
        "affinity": {},
        "nics": {"nic1": {"index": 2, "path": []}},
        "gpus": [[device(0x21, kind="0x030200")]],
    }
    unknown = make_files(
        lab,
        *(getattr(build_design(lab), part) for part in ("topology", "wiring", "routes")),
        {"a": parse_hardware(document)},
        {"b": "no session with 10.99.0.12"},
    )
    gpus = "it has 4 GPUs, at addresses that NCCL finds itself"
    everything = (
        "assumed that NCCL numbers its NICs in the order of the lab file, its NICs are attached to the processor, "
        f"without PCI addresses, {gpus}, and its processor is an x86_64 of AMD"
    )
    assert unknown.assumptions == (
        "a: no interface nic2: assumed that NCCL numbers its NICs in the order of the lab file",
        "a: nic1 has no PCI device: attached to the processor, as NCCL assumes",
        f"a: the host shows 1 GPU of NVIDIA, the lab file says 4: assumed that {gpus}",
        "a: NCCL does not know its processor: assumed that its processor is an x86_64 of AMD",
        f"b: no session with 10.99.0.12: {everything}",
    )


def test_a_hop_without_a_link_takes_the_nics_of_its_route_and_is_said(small_lab_text):
    lab = lab_of(small_lab_text(5, 2))
    design = build_design(lab)
    lost = {link for link in design.wiring.links if {link.source.node, link.target.node} == {0, 1}}
    wiring = replace(design.wiring, links=tuple(link for link in design.wiring.links if link not in lost))
    around = replace(
        design.routes,
        first_link={
            pair: next(
                link
                for link in wiring.links
                if link.source.node == pair[0]
                and (link.target.node - pair[0]) % 5 in ((4,) if pair[0] < 1 else (1,))
            )
            if pair == (0, 1)
            else link
            for pair, link in design.routes.first_link.items()
        },
    )
    step = {(4, 1): 3, (3, 1): 2, (2, 1): 1}
    for (here, there), following in step.items():
        around.first_link[here, there] = next(
            link for link in wiring.links if (link.source.node, link.target.node) == (here, following)
        )
    ring = find_rings(design.topology, wiring, around)[0]
    (channel,) = ring.channels
    by_nodes = {(link.source.node, link.target.node): link for link in wiring.links}
    assert channel.relayed_hops[0] == (0, 1)
    assert channel.nics[0][1] == by_nodes[0, 4].source.index
    assert channel.nics[1][0] == by_nodes[2, 1].target.index


def test_more_than_nccl_reads_is_refused(small_lab_text):
    lab = lab_of(small_lab_text(2, 1), 700)
    with pytest.raises(
        HostError, match=r"a: 702 GPUs or NICs side by side in its NCCL graph, but NCCL reads 640"
    ):
        of(lab, build_design(lab))
    with pytest.raises(TopologyError, match="one host"):
        find_rings(Topology(1, 0, False, (), ()), Wiring(1, 0, False, ()), build_design(lab).routes)


# ------------------------------------------------------------------------------ faults that NCCL would not forgive


@pytest.fixture(scope="module")
def texts(small_lab_text):
    """Return topology and graph of a host with two GPUs and two NICs."""
    lab = lab_of(small_lab_text(3, 2), 2)
    files = of(lab, build_design(lab)).texts_by_host["a"]
    return files[TOPOLOGY_FILE], files["ring-1.xml"]


def read_both(topology, graph):
    """Return the graphs of two files."""
    return read_graphs(graph, read_topology(topology), 2)


FAULTS = {
    "no version": ("topology", ' version="1"', "", "system has no version"),
    "another version": ("topology", 'version="1"', 'version="2"', "version is '2'"),
    "no NUMA node": ("topology", ' numaid="0"', "", "cpu has no numaid"),
    "no architecture": ("topology", ' arch="x86_64"', "", "cpu has no arch"),
    "another architecture": ("topology", 'arch="x86_64"', 'arch="amd64"', "arch is 'amd64'"),
    "no vendor": ("topology", ' vendor="AuthenticAMD"', "", "cpu has no vendor"),
    "no model": ("topology", "AuthenticAMD", "GenuineIntel", "no familyid"),
    "no name": ("topology", ' name="nic1"', "", "net has no name"),
    "a name twice": ("topology", 'name="nic2"', 'name="nic1"', "nic1 occurs 2 times"),
    "a number twice": ("topology", 'dev="1"', 'dev="0"', "0 occurs 2 times"),
    "a rate of 0": ("topology", 'speed="100"', 'speed="0"', "speed is '0'"),
    "a declaration": ("topology", "<system", '<?xml version="1.0"?>\n<system', r"expected >, got '\?'"),
    "a tab": ("topology", "\n  <cpu", "\n\t<cpu", "expected <"),
    "two blanks": ("topology", "<net name", "<net  name", "has no value"),
    "a blank at the end": ("topology", '"/>', '" />', "has no value"),
    "a line break in a tag": ("topology", '<cpu numaid="0"', '<cpu numaid="0"\n', "expected >"),
    "text": ("topology", "<nic>", "<nic>words", "expected <"),
    "no quotes": ("topology", 'dev="0"', "dev=0", "without quotes"),
    "an element that NCCL ignores": ("topology", "<nic>", "<port/><nic>", "port is ignored in cpu"),
    "a wrong closing tag": ("topology", "</nic>", "</net>", "nic is closed by net"),
    "an end too early": ("topology", "</system>\n", "", "system is not closed"),
    "a long name": ("topology", 'name="nic1"', f'name="{"n" * 254}"', "too long"),
    "many attributes": (
        "topology",
        'speed="100"/>',
        'speed="100" ' + " ".join(f'a{n}="0"' for n in range(14)) + "/>",
        "ignored",
    ),
    "many elements": ("topology", "<nic>", "<nic>" + '<net name="x"/>' * 253, "too many elements"),
    "no version of the graphs": ("graph", ' version="1"', "", "graphs has no version"),
    **{
        f"no {key}": ("graph", rf' {key}="[^"]*"', "", f"graph has no {key}")
        for key in (
            "id",
            "pattern",
            "crossnic",
            "nchannels",
            "speedintra",
            "speedinter",
            "typeintra",
            "typeinter",
        )
    },
    "no samechannels": ("graph", r' samechannels="1"', "", "graph has no samechannels"),
    "an unknown path": ("graph", 'typeinter="SYS"', 'typeinter="NODE"', "typeinter is 'NODE'"),
    "a channel too few": ("graph", 'nchannels="1"', 'nchannels="2"', "1 channels, but nchannels is 2"),
    "a NIC that does not exist": (
        "graph",
        '<net dev="0x1"/>',
        '<net dev="0x9"/>',
        "the topology has no net 9",
    ),
    "a GPU twice": ("graph", '<gpu dev="0x1"/>', '<gpu dev="0x0"/>', "each GPU once"),
    "no GPU": ("graph", ' *<gpu dev="0x1"/>\n', "", "a channel of net gpu net"),
    "no number": ("graph", '<gpu dev="0x1"/>', "<gpu/>", "gpu has no dev"),
    "another NIC without leave": ("graph", 'crossnic="1"', 'crossnic="0"', "changes its NIC"),
    "a ring as a tree": ("graph", 'id="0" pattern="4"', 'id="0" pattern="3"', "graph 0 has pattern 3"),
    "a graph twice": ("graph", 'id="1"', 'id="0"', "0 occurs 2 times"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_reader_finds_what_nccl_would_not_read(texts, fault):
    which, before, after, message = FAULTS[fault]
    topology, graph = texts
    whole = topology if which == "topology" else graph
    changed, count = re.subn(before, after.replace("\\", r"\\"), whole)
    assert count > 0
    with pytest.raises(ReaderError, match=message):
        read_both(*((changed, graph) if which == "topology" else (topology, changed)))


def test_the_reader_takes_what_nccl_takes(texts):
    topology, graph = texts
    plain = read_both(topology, graph)
    assert read_both(topology.replace('"', "'"), graph.replace("0x", "")) == plain
    assert read_both(f"<!-- a > b -- > --><!----->\r\n{topology}<!---->", graph.replace("\n", "")) == plain
    with pytest.raises(ReaderError, match="ends too early"):
        read_tree("<!-- <system/>", "topology")


SMALL = '<system version="1"><cpu numaid="0" arch="arm64"><nic>{}</nic></cpu></system>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SMALL.format(f'<net name="{"n" * 253}"/>'), ""),
        (SMALL.format(f'<net name="{"n" * 254}"/>'), "a value is too long"),
        (SMALL.format('<net name="x"/>' * 252), ""),
        (SMALL.format('<net name="x"/>' * 253), "too many elements"),
        (SMALL.format('<net name="x"></net>\r\n'), ""),
        (f"{SMALL.format('')}\n\n ", ""),
        (SMALL.format("").replace("</nic>", "</nic >"), "in the closing tag of nic"),
        ("", "the file has no element"),
        ("<!-- x -->", "the file has no element"),
    ],
)
def test_the_reader_has_the_limits_of_nccl(text, message):
    """NCCL's own parser, compiled alone, took and refused these texts."""
    if message:
        with pytest.raises(ReaderError, match=message):
            read_tree(text, "topology")
    else:
        assert read_tree(text, "topology").name == "system"


# ------------------------------------------------------------------------------ hosts that are asked


@pytest.fixture
def machine(tmp_path):
    """Return the root of a file system with a GPU and a NIC behind a PCI switch, a virtual NIC, and another GPU."""
    root = tmp_path / "root"

    def make(path, **texts):
        folder = root / "sys/devices" / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(f"{text}\n")
        return folder

    port = "pci0000:16/0000:16:02.0"
    switch = f"{port}/0000:17:00.0"
    make(port, max_link_speed="32.0 GT/s PCIe", max_link_width=16, **{"class": "0x060400"})
    make(
        switch,
        max_link_speed="16.0 GT/s PCIe",
        max_link_width=16,
        numa_node=1,
        vendor="0x1000",
        **{"class": "0x060400"},
    )
    gpu_class = {"class": "0x030200"}
    for number, kind in (("0", gpu_class), ("1", {"class": "0x020000"})):
        make(f"{switch}/0000:18:0{number}.0", max_link_speed="8.0 GT/s PCIe", max_link_width=8)
        place = f"{switch}/0000:18:0{number}.0/0000:1{9 + int(number):x}:00.0"
        vendor = "0x10de" if kind is gpu_class else "0x15b3"
        texts = {
            "max_link_speed": "16.0 GT/s PCIe",
            "max_link_width": 16,
            "numa_node": 1,
            "vendor": vendor,
            **kind,
        }
        make(place, **texts)
    make("pci0000:00/0000:00:02.0", vendor="0x8086", numa_node=0, **{"class": "0x030000"})
    make("system/node/node0", cpumap="0f")
    nic = make(f"{switch}/0000:18:01.0/0000:1a:00.0/net/nic1", ifindex=4)
    virtual = make("virtual/net/nic2", ifindex=3)
    (nic / "device").symlink_to("../..")
    for folder, names in (("class/net", (nic, virtual)), ("bus/pci/devices", root.rglob("0000:*"))):
        (root / "sys" / folder).mkdir(parents=True)
        for each in list(names):
            (root / "sys" / folder / each.name).symlink_to(each)
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text(
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: x\n\n"
        "processor\t: 1\n"
    )
    return root


def test_a_machine_shows_the_bridges_above_its_devices_as_nccl_sees_them(machine):
    shown = pci.read_machine(machine, ["nic1", "nic2", "nic9"])
    assert {name: nic["index"] for name, nic in shown["nics"].items()} == {"nic1": 4, "nic2": 3}
    assert shown["nics"]["nic2"]["path"] == []
    bridge, card = shown["nics"]["nic1"]["path"]
    assert (bridge["address"], bridge["class"], bridge["link_speed"]) == (
        "0000:17:00.0",
        "0x060400",
        "16.0 GT/s PCIe",
    )
    assert (card["address"], card["numa"], card["link_speed"], card["link_width"]) == (
        "0000:1a:00.0",
        "1",
        "8.0 GT/s PCIe",
        8,
    )
    assert [[each["address"] for each in path] for path in shown["gpus"]] == [
        ["0000:17:00.0", "0000:19:00.0"]
    ]
    assert shown["processor"] == {"vendor": "GenuineIntel", "family": "6", "model": "143"}
    assert shown["affinity"] == {"0": "0f"}


class MachineFleet:
    """A fleet whose hosts print what the program finds below a root, or fail."""

    def __init__(self, lab, machine):
        self.hosts, self.machine = lab.hosts[:2], machine

    def put(self, files, *, hosts=None):
        assert set(files) == {"pci.py"}
        return ".cache/x"

    def run(self, commands, *, stdin=None, timeout_s=30.0):
        assert all(command.split()[1:3] == ["-IS", ".cache/x/pci.py"] for command in commands.values())
        names = commands["a"].split()[3:]
        printed = json.dumps(pci.read_machine(self.machine, names))
        return {
            "a": CommandResult("a", 0, printed, ""),
            "b": CommandResult("b", 127, "", "sh: python3: not found\n"),
        }


def test_hosts_are_asked_and_those_that_cannot_answer_are_named(small_lab_text, machine):
    lab = lab_of(small_lab_text(3, 2), 1)
    hardware, reasons = read_hardware(MachineFleet(lab, machine), lab)
    assert set(hardware) == {"a"}
    assert reasons == {"b": "its PCI devices cannot be read: sh: python3: not found"}
    design = build_design(lab)
    files = make_files(lab, design.topology, design.wiring, design.routes, hardware, reasons)
    read = read_topology(files.texts_by_host["a"][TOPOLOGY_FILE])
    assert read == ReadTopology(
        {0: "nic2", 1: "nic1"}, {"nic1": 100, "nic2": 100}, {0: "0000:19:00.0"}, {"nic1": "0000:1a:00.0"}
    )
    assert [line.partition(":")[0] for line in files.assumptions] == ["a", "b", "c"]
    assert "PXB" not in files.texts_by_host["b"]["ring-1.xml"]

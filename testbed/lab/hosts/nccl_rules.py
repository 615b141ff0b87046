"""Rules by which NCCL reads topology and graph files: elements, attributes, values, limits, each with its source.

The rules are those of NCCL 2.30.7. NCCL's reader is not a general XML parser. Most mistakes in a file make it end the
program or read zeros, without naming the line. `docs/reference/nccl-files.md` lists the rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

NCCL_VERSION = "2.30.7"
"""Version of the source from which the rules are taken."""

FileKind = Literal["topology", "graph"]

CHILDREN_BY_ELEMENT: Mapping[FileKind, Mapping[str, tuple[str, ...]]] = {
    "topology": {
        "": ("system",),
        "system": ("cpu",),
        "cpu": ("pci", "nic"),
        "pci": ("pci", "gpu", "nic", "pcilink"),
        "gpu": ("nvlink", "c2c"),
        "nic": ("net",),
        "net": (),
        "nvlink": (),
        "c2c": (),
        "pcilink": (),
    },
    "graph": {"": ("graphs",), "graphs": ("graph",), "graph": ("channel",), "channel": ("net", "gpu")},
}
"""Elements that may be inside each element; "" is the file."""

MAX_ELEMENT_COUNT_BY_FILE: Mapping[FileKind, int] = {"topology": 255, "graph": 65535}
"""One less than NCCL's own limit: with all elements in use, NCCL stops before it reads a closing tag."""
MAX_CHILD_COUNT = 640
MAX_ATTRIBUTE_COUNT = 16
MAX_TEXT_LENGTH = 253
"""Characters of a name or of a value."""
MAX_CHANNEL_COUNT = 32
"""Channels of a graph: NCCL has 64 and connects each twice."""
RING_PATTERN, TREE_PATTERN = 4, 3
"""Patterns of the ring graph (id 0) and the tree graph (id 1)."""

_NUMBER_PATTERN = r"-?[0-9]+"
_HEX_PATTERN = r"(0x)?[0-9a-f]+"
_DECIMAL_PATTERN = r"[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?"
_ADDRESS_PATTERN = r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]"
_PATH_PATTERN = r"LOC|NVL|NVB|PIX|PXB|P2C|PXN|PHB|SYS"
LINK_SPEED_PATTERN = r"|(2\.5|5|8|16|32) GT/s|(2\.5|5\.0|8\.0|16\.0|32\.0|64\.0) GT/s PCIe"
"""Pattern of the link speeds that NCCL knows, and of the empty text."""

XML_SOURCE = "src/graph/xml.cc"
HEADER_SOURCE = "src/graph/xml.h"
TOPO_SOURCE = "src/graph/topo.cc"
SEARCH_SOURCE = "src/graph/search.cc"
CONNECT_SOURCE = "src/graph/connect.cc"


@dataclass(frozen=True, slots=True)
class AttributeRule:
    """An attribute of an element: whether the file must contain it, and the values that NCCL understands.

    `pattern` matches the whole value.
    """

    file: FileKind
    element: str
    attribute: str
    is_required: bool
    pattern: str
    meaning: str
    source: str


@dataclass(frozen=True, slots=True)
class TextRule:
    """A rule on the whole text of a file, or between the two files."""

    subject: str
    meaning: str
    source: str


ATTRIBUTE_RULES: tuple[AttributeRule, ...] = (
    AttributeRule("topology", "system", "version", True, "1", "1", f"{XML_SOURCE}, `ncclTopoXmlLoadSystem`"),
    AttributeRule(
        "topology",
        "cpu",
        "numaid",
        True,
        _NUMBER_PATTERN,
        "number of the NUMA node; -1 if the machine has no NUMA nodes. If NCCL finds a GPU itself, it adds the "
        "GPU to the `cpu` of the GPU's NUMA node",
        f"{TOPO_SOURCE}, `ncclTopoAddCpu`; {XML_SOURCE}, `ncclTopoGetXmlFromSys`",
    ),
    AttributeRule(
        "topology",
        "cpu",
        "arch",
        True,
        "x86_64|arm64|ppc64",
        "`x86_64`, `arm64` or `ppc64`",
        f"{TOPO_SOURCE}, `ncclTopoAddCpu`",
    ),
    AttributeRule(
        "topology",
        "cpu",
        "vendor",
        False,
        r"GenuineIntel|AuthenticAMD|CentaurHauls|  Shanghai  ",
        "name of the vendor; required if `arch` is `x86_64`",
        f"{TOPO_SOURCE}, `ncclTopoAddCpu`",
    ),
    AttributeRule(
        "topology",
        "cpu",
        "familyid",
        False,
        _NUMBER_PATTERN,
        "number of the processor's family or model; required for Intel and Zhaoxin",
        f"{TOPO_SOURCE}, `ncclTopoAddCpu`",
    ),
    AttributeRule(
        "topology",
        "cpu",
        "modelid",
        False,
        _NUMBER_PATTERN,
        "number of the processor's family or model; required for Intel and Zhaoxin",
        f"{TOPO_SOURCE}, `ncclTopoAddCpu`",
    ),
    AttributeRule(
        "topology",
        "cpu",
        "affinity",
        False,
        r"[0-9a-f]{1,8}(,[0-9a-f]{1,8})*",
        "processors of the node: hexadecimal masks of 32 processors each, the highest processors first",
        f"{TOPO_SOURCE}, `ncclTopoAddCpu`; src/include/cpuset.h, `ncclStrToCpuset`",
    ),
    AttributeRule(
        "topology",
        "cpu",
        "host_hash",
        False,
        _HEX_PATTERN,
        "NCCL overwrites it",
        f"{TOPO_SOURCE}, `ncclTopoGetSystem`",
    ),
    AttributeRule(
        "topology",
        "pci",
        "busid",
        True,
        _ADDRESS_PATTERN,
        "PCI address in lower case, because NCCL compares a GPU's address as text",
        f"{TOPO_SOURCE}, `ncclTopoAddPci`; {XML_SOURCE}, `ncclTopoGetPciNode`; src/misc/utils.cc, `int64ToBusId`",
    ),
    AttributeRule(
        "topology",
        "pci",
        "class",
        True,
        r"0x[0-9a-f]{2,6}",
        "`0x02...` is a NIC, `0x03...` a GPU, `0x0680...` an NVSwitch, every other class a bridge",
        f"{TOPO_SOURCE}, `ncclTopoAddPci`",
    ),
    AttributeRule(
        "topology",
        "pci",
        "link_speed",
        True,
        LINK_SPEED_PATTERN,
        "speed as the kernel writes it; NCCL takes an empty or unknown value as 8 GT/s",
        f"{TOPO_SOURCE}, `ncclTopoAddPci`",
    ),
    AttributeRule(
        "topology",
        "pci",
        "link_width",
        True,
        r"[0-9]*",
        "number of lanes; NCCL takes 0 or an empty value as 16",
        f"{TOPO_SOURCE}, `ncclTopoAddPci`",
    ),
    *(
        AttributeRule(
            "topology",
            "pci",
            key,
            False,
            _HEX_PATTERN,
            "0 if absent",
            f"{TOPO_SOURCE}, `ncclTopoGetIntDevice`",
        )
        for key in ("vendor", "device", "subsystem_vendor", "subsystem_device")
    ),
    AttributeRule(
        "topology",
        "gpu",
        "dev",
        False,
        _NUMBER_PATTERN,
        "number that the driver gives the GPU; if absent, NCCL asks the driver. With -1, NCCL does not use the GPU",
        f"{XML_SOURCE}, `ncclTopoGetXmlFromGpu`",
    ),
    AttributeRule(
        "topology",
        "gpu",
        "sm",
        False,
        _NUMBER_PATTERN,
        "if absent, NCCL asks the driver",
        f"{XML_SOURCE}, `ncclTopoGetXmlFromGpu`",
    ),
    AttributeRule(
        "topology",
        "gpu",
        "rank",
        False,
        _NUMBER_PATTERN,
        "NCCL overwrites it",
        f"{TOPO_SOURCE}, `ncclTopoGetSystem`",
    ),
    AttributeRule(
        "topology",
        "gpu",
        "gdr",
        False,
        "[01]",
        "if absent, NCCL asks the driver",
        f"{TOPO_SOURCE}, `ncclTopoGetSystem`",
    ),
    AttributeRule(
        "topology",
        "net",
        "name",
        True,
        r"[^\"<>& ]+",
        "name in the network plugin; for sockets, the name of the interface. If the plugin does not have this name, "
        "NCCL removes the `net`",
        f"{XML_SOURCE}, `ncclTopoFillNet`, `ncclTopoTrimXml`",
    ),
    AttributeRule(
        "topology",
        "net",
        "dev",
        False,
        _NUMBER_PATTERN,
        "NCCL overwrites it with the plugin's number; for sockets, this is the position in the list of running "
        "interfaces (`getifaddrs`)",
        f"{TOPO_SOURCE}, `ncclTopoPopulateNics`; src/os/linux.cc, `ncclOsFindInterfaces`",
    ),
    AttributeRule(
        "topology",
        "net",
        "speed",
        False,
        r"[1-9][0-9]*",
        "integer, in Mbit/s; NCCL takes 0 and negative numbers as 10000. If absent, NCCL takes the speed of the plugin",
        f"{TOPO_SOURCE}, `ncclTopoAddNet`",
    ),
    AttributeRule(
        "topology",
        "net",
        "latency",
        False,
        _DECIMAL_PATTERN,
        "microseconds",
        f"{TOPO_SOURCE}, `ncclTopoPopulateNics`",
    ),
    *(
        AttributeRule(
            "topology",
            "net",
            key,
            False,
            _HEX_PATTERN,
            "if absent, NCCL takes the value of the plugin",
            f"{TOPO_SOURCE}, `ncclTopoPopulateNics`",
        )
        for key in ("port", "guid", "maxconn", "gdr", "rail", "plane", "coll", "net", "gin", "rma")
    ),
    AttributeRule(
        "graph", "graphs", "version", True, "1", "1", f"{XML_SOURCE}, `ncclTopoXmlGraphLoadGraphs`"
    ),
    AttributeRule(
        "graph",
        "graph",
        "id",
        True,
        r"[0-4]",
        "0 ring, 1 tree, 2 and 4 CollNet, 3 NVLS. NCCL computes each graph that the file does not contain",
        f"{SEARCH_SOURCE}, `ncclTopoGetGraphFromXmlSub`, `ncclTopoCompute`",
    ),
    AttributeRule(
        "graph",
        "graph",
        "pattern",
        True,
        r"[1-6]",
        "1 balanced tree, 2 split tree, 3 tree, 4 ring, 5 NVLS, 6 CollNet",
        f"{SEARCH_SOURCE}, `ncclTopoGetGraphFromXmlSub`; src/include/graph.h",
    ),
    AttributeRule(
        "graph",
        "graph",
        "crossnic",
        True,
        r"[012]",
        "1: a ring may leave a host by another NIC than the one where it enters; NCCL ignores such a graph if "
        "`NCCL_CROSS_NIC` is 0. With 2, NCCL exchanges channels of odd hosts",
        f"{SEARCH_SOURCE}, `ncclTopoGetGraphFromXmlSub`; {CONNECT_SOURCE}, `ncclTopoPostset`",
    ),
    AttributeRule(
        "graph",
        "graph",
        "nchannels",
        True,
        r"[1-9][0-9]*",
        "the number of `channel` elements. NCCL reads zeros for missing channels",
        f"{SEARCH_SOURCE}, `ncclTopoGetGraphFromXmlSub`",
    ),
    AttributeRule(
        "graph",
        "graph",
        "speedintra",
        True,
        _DECIMAL_PATTERN,
        "Gbyte/s of one channel inside a host",
        f"{SEARCH_SOURCE}, `ncclTopoGetGraphFromXmlSub`",
    ),
    AttributeRule(
        "graph",
        "graph",
        "speedinter",
        True,
        _DECIMAL_PATTERN,
        "Gbyte/s of one channel between hosts",
        f"{SEARCH_SOURCE}, `ncclTopoGetGraphFromXmlSub`",
    ),
    AttributeRule(
        "graph",
        "graph",
        "latencyinter",
        False,
        _DECIMAL_PATTERN,
        "0 if absent",
        f"{SEARCH_SOURCE}, `ncclTopoGetGraphFromXmlSub`",
    ),
    *(
        AttributeRule(
            "graph",
            "graph",
            key,
            True,
            _PATH_PATTERN,
            f"longest path between {subject}: LOC, NVL, NVB, PIX, PXB, P2C, PXN, PHB or SYS. "
            "Without this attribute the program crashes",
            f"{SEARCH_SOURCE}, `ncclTopoGetGraphFromXmlSub`; {HEADER_SOURCE}, `kvConvertToInt`",
        )
        for key, subject in (("typeintra", "GPUs"), ("typeinter", "a GPU and its NIC"))
    ),
    AttributeRule(
        "graph",
        "graph",
        "samechannels",
        True,
        "[01]",
        "1 if all channels pass the GPUs in the same order",
        f"{SEARCH_SOURCE}, `ncclTopoGetGraphFromXmlSub`",
    ),
    AttributeRule(
        "graph",
        "net",
        "dev",
        True,
        _HEX_PATTERN,
        "hexadecimal, with or without `0x`: number of a `net` of the topology",
        f"{SEARCH_SOURCE}, `ncclTopoGetChannelFromXml`; src/graph/topo.h, `ncclTopoIdToNetDev`",
    ),
    AttributeRule(
        "graph",
        "gpu",
        "dev",
        True,
        _HEX_PATTERN,
        "hexadecimal, with or without `0x`: number of a GPU of the communicator",
        f"{SEARCH_SOURCE}, `ncclTopoGetChannelFromXml`",
    ),
    AttributeRule(
        "graph",
        "gpu",
        "rank",
        False,
        _NUMBER_PATTERN,
        "rank in the communicator; if absent, NCCL finds the rank by `dev`",
        f"{SEARCH_SOURCE}, `ncclTopoGetChannelFromXml`",
    ),
)
"""Attributes that NCCL reads."""

TEXT_RULES: tuple[TextRule, ...] = (
    TextRule(
        "start of the file",
        "the element `system` or `graphs`, without an XML declaration",
        f"{XML_SOURCE}, `xmlGetNode`, `ncclTopoGetXmlFromFile`",
    ),
    TextRule(
        "between elements", "only blanks, `\\n` and `\\r`; no tabs and no text", f"{XML_SOURCE}, `xmlGetNode`"
    ),
    TextRule(
        "attributes",
        "one blank before each attribute, none before `/>` or `>`; quotes are `\"` or `'`; "
        "entities such as `&amp;` are not decoded",
        f"{XML_SOURCE}, `xmlGetNode`, `xmlGetValue`",
    ),
    TextRule(
        "closing tag",
        "`</NAME>` with the name of the open element, without blanks",
        f"{XML_SOURCE}, `xmlLoadSub`",
    ),
    TextRule("comments", "`<!-- ... -->`, only between elements", f"{XML_SOURCE}, `xmlSkipComment`"),
    TextRule(
        "lengths",
        f"names and values have at most {MAX_TEXT_LENGTH} characters",
        f"{XML_SOURCE}, `xmlGetToken`, `xmlGetValue`",
    ),
    TextRule(
        "counts",
        f"at most {MAX_ATTRIBUTE_COUNT} attributes of an element (NCCL ignores the others); at most {MAX_CHILD_COUNT} "
        f"children of an element; at most {MAX_ELEMENT_COUNT_BY_FILE['topology']} elements of a topology, including "
        f"those that NCCL adds; at most {MAX_ELEMENT_COUNT_BY_FILE['graph']} elements of a graph file",
        f"{XML_SOURCE}, `xmlGetNode`, `xmlLoadSub`; {HEADER_SOURCE}; src/graph/topo.h",
    ),
    TextRule(
        "other elements",
        "NCCL ignores other elements; if such an element contains elements, NCCL's reader fails",
        f"{XML_SOURCE}, `xmlLoadSub`",
    ),
    TextRule(
        "addresses and names",
        "each `busid` of a `pci`, and each `name` of a `net`, occurs once: NCCL uses only the first element",
        f"{HEADER_SOURCE}, `xmlFindTagKv`",
    ),
    TextRule(
        "`nic`",
        "inside `pci`; for an interface without a PCI device, inside `cpu`",
        f"{XML_SOURCE}, `ncclTopoXmlLoadCpu`, `ncclTopoFillNet`",
    ),
    TextRule(
        "channel",
        "in this order: the `net` where the ring enters; each GPU of the communicator on this host; "
        "the `net` where the ring leaves",
        f"{SEARCH_SOURCE}, `ncclTopoGetChannelFromXml`, `ncclTopoGetXmlFromChannel`",
    ),
    TextRule(
        "channels",
        f"at most {MAX_CHANNEL_COUNT}, and the same number on all hosts. Ring and tree both use the smaller of their "
        "two numbers",
        f"src/init.cc, `initTransportsRank`; {CONNECT_SOURCE}, `ncclTopoPostset`",
    ),
    TextRule(
        "one GPU per host",
        "the first `net` of a channel serves both directions",
        f"{SEARCH_SOURCE}, `ncclTopoGetNetDev`",
    ),
    TextRule(
        "order of the hosts",
        "all channels have the order of the ranks. A file sets only the order of GPUs and NICs inside a host",
        f"{CONNECT_SOURCE}, `connectRings`",
    ),
)
"""Rules on more than one attribute."""

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

File = Literal["topology", "graph"]

CHILDREN: Mapping[File, Mapping[str, tuple[str, ...]]] = {
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

MAX_ELEMENTS: Mapping[File, int] = {"topology": 255, "graph": 65535}
"""One less than NCCL's own limit: with all elements in use, NCCL stops before it reads a closing tag."""
MAX_CHILDREN = 640
MAX_ATTRIBUTES = 16
MAX_LENGTH = 253
"""Characters of a name or of a value."""
MAX_CHANNELS = 32
"""Channels of a graph: NCCL has 64 and connects each twice."""
RING, TREE = 4, 3
"""Patterns of the ring graph (id 0) and the tree graph (id 1)."""

_NUMBER = r"-?[0-9]+"
_HEX = r"(0x)?[0-9a-f]+"
_DECIMAL = r"[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?"
_ADDRESS = r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]"
_PATHS = r"LOC|NVL|NVB|PIX|PXB|P2C|PXN|PHB|SYS"
LINK_SPEED = r"|(2\.5|5|8|16|32) GT/s|(2\.5|5\.0|8\.0|16\.0|32\.0|64\.0) GT/s PCIe"
"""Pattern of the link speeds that NCCL knows, and of the empty text."""

XML = "src/graph/xml.cc"
HEADER = "src/graph/xml.h"
TOPO = "src/graph/topo.cc"
SEARCH = "src/graph/search.cc"
CONNECT = "src/graph/connect.cc"


@dataclass(frozen=True, slots=True)
class AttributeRule:
    """An attribute of an element: whether the file must contain it, and the values that NCCL understands.

    `pattern` matches the whole value.
    """

    file: File
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


ATTRIBUTES: tuple[AttributeRule, ...] = (
    AttributeRule("topology", "system", "version", True, "1", "1", f"{XML}, `ncclTopoXmlLoadSystem`"),
    AttributeRule(
        "topology",
        "cpu",
        "numaid",
        True,
        _NUMBER,
        "number of the NUMA node; -1 if the machine has no NUMA nodes. If NCCL finds a GPU itself, it adds the "
        "GPU to the `cpu` of the GPU's NUMA node",
        f"{TOPO}, `ncclTopoAddCpu`; {XML}, `ncclTopoGetXmlFromSys`",
    ),
    AttributeRule(
        "topology",
        "cpu",
        "arch",
        True,
        "x86_64|arm64|ppc64",
        "`x86_64`, `arm64` or `ppc64`",
        f"{TOPO}, `ncclTopoAddCpu`",
    ),
    AttributeRule(
        "topology",
        "cpu",
        "vendor",
        False,
        r"GenuineIntel|AuthenticAMD|CentaurHauls|  Shanghai  ",
        "name of the vendor; required if `arch` is `x86_64`",
        f"{TOPO}, `ncclTopoAddCpu`",
    ),
    AttributeRule(
        "topology",
        "cpu",
        "familyid",
        False,
        _NUMBER,
        "number of the processor's family or model; required for Intel and Zhaoxin",
        f"{TOPO}, `ncclTopoAddCpu`",
    ),
    AttributeRule(
        "topology",
        "cpu",
        "modelid",
        False,
        _NUMBER,
        "number of the processor's family or model; required for Intel and Zhaoxin",
        f"{TOPO}, `ncclTopoAddCpu`",
    ),
    AttributeRule(
        "topology",
        "cpu",
        "affinity",
        False,
        r"[0-9a-f]{1,8}(,[0-9a-f]{1,8})*",
        "processors of the node: hexadecimal masks of 32 processors each, the highest processors first",
        f"{TOPO}, `ncclTopoAddCpu`; src/include/cpuset.h, `ncclStrToCpuset`",
    ),
    AttributeRule(
        "topology", "cpu", "host_hash", False, _HEX, "NCCL overwrites it", f"{TOPO}, `ncclTopoGetSystem`"
    ),
    AttributeRule(
        "topology",
        "pci",
        "busid",
        True,
        _ADDRESS,
        "PCI address in lower case, because NCCL compares a GPU's address as text",
        f"{TOPO}, `ncclTopoAddPci`; {XML}, `ncclTopoGetPciNode`; src/misc/utils.cc, `int64ToBusId`",
    ),
    AttributeRule(
        "topology",
        "pci",
        "class",
        True,
        r"0x[0-9a-f]{2,6}",
        "`0x02...` is a NIC, `0x03...` a GPU, `0x0680...` an NVSwitch, every other class a bridge",
        f"{TOPO}, `ncclTopoAddPci`",
    ),
    AttributeRule(
        "topology",
        "pci",
        "link_speed",
        True,
        LINK_SPEED,
        "speed as the kernel writes it; NCCL takes an empty or unknown value as 8 GT/s",
        f"{TOPO}, `ncclTopoAddPci`",
    ),
    AttributeRule(
        "topology",
        "pci",
        "link_width",
        True,
        r"[0-9]*",
        "number of lanes; NCCL takes 0 or an empty value as 16",
        f"{TOPO}, `ncclTopoAddPci`",
    ),
    *(
        AttributeRule("topology", "pci", key, False, _HEX, "0 if absent", f"{TOPO}, `ncclTopoGetIntDevice`")
        for key in ("vendor", "device", "subsystem_vendor", "subsystem_device")
    ),
    AttributeRule(
        "topology",
        "gpu",
        "dev",
        False,
        _NUMBER,
        "number that the driver gives the GPU; if absent, NCCL asks the driver. With -1, NCCL does not use the GPU",
        f"{XML}, `ncclTopoGetXmlFromGpu`",
    ),
    AttributeRule(
        "topology",
        "gpu",
        "sm",
        False,
        _NUMBER,
        "if absent, NCCL asks the driver",
        f"{XML}, `ncclTopoGetXmlFromGpu`",
    ),
    AttributeRule(
        "topology", "gpu", "rank", False, _NUMBER, "NCCL overwrites it", f"{TOPO}, `ncclTopoGetSystem`"
    ),
    AttributeRule(
        "topology",
        "gpu",
        "gdr",
        False,
        "[01]",
        "if absent, NCCL asks the driver",
        f"{TOPO}, `ncclTopoGetSystem`",
    ),
    AttributeRule(
        "topology",
        "net",
        "name",
        True,
        r"[^\"<>& ]+",
        "name in the network plugin; for sockets, the name of the interface. If the plugin does not have this name, "
        "NCCL removes the `net`",
        f"{XML}, `ncclTopoFillNet`, `ncclTopoTrimXml`",
    ),
    AttributeRule(
        "topology",
        "net",
        "dev",
        False,
        _NUMBER,
        "NCCL overwrites it with the plugin's number; for sockets, this is the position in the list of running "
        "interfaces (`getifaddrs`)",
        f"{TOPO}, `ncclTopoPopulateNics`; src/os/linux.cc, `ncclOsFindInterfaces`",
    ),
    AttributeRule(
        "topology",
        "net",
        "speed",
        False,
        r"[1-9][0-9]*",
        "integer, in Mbit/s; NCCL takes 0 and negative numbers as 10000. If absent, NCCL takes the speed of the plugin",
        f"{TOPO}, `ncclTopoAddNet`",
    ),
    AttributeRule(
        "topology", "net", "latency", False, _DECIMAL, "microseconds", f"{TOPO}, `ncclTopoPopulateNics`"
    ),
    *(
        AttributeRule(
            "topology",
            "net",
            key,
            False,
            _HEX,
            "if absent, NCCL takes the value of the plugin",
            f"{TOPO}, `ncclTopoPopulateNics`",
        )
        for key in ("port", "guid", "maxconn", "gdr", "rail", "plane", "coll", "net", "gin", "rma")
    ),
    AttributeRule("graph", "graphs", "version", True, "1", "1", f"{XML}, `ncclTopoXmlGraphLoadGraphs`"),
    AttributeRule(
        "graph",
        "graph",
        "id",
        True,
        r"[0-4]",
        "0 ring, 1 tree, 2 and 4 CollNet, 3 NVLS. NCCL computes each graph that the file does not contain",
        f"{SEARCH}, `ncclTopoGetGraphFromXmlSub`, `ncclTopoCompute`",
    ),
    AttributeRule(
        "graph",
        "graph",
        "pattern",
        True,
        r"[1-6]",
        "1 balanced tree, 2 split tree, 3 tree, 4 ring, 5 NVLS, 6 CollNet",
        f"{SEARCH}, `ncclTopoGetGraphFromXmlSub`; src/include/graph.h",
    ),
    AttributeRule(
        "graph",
        "graph",
        "crossnic",
        True,
        r"[012]",
        "1: a ring may leave a host by another NIC than the one where it enters; NCCL ignores such a graph if "
        "`NCCL_CROSS_NIC` is 0. With 2, NCCL exchanges channels of odd hosts",
        f"{SEARCH}, `ncclTopoGetGraphFromXmlSub`; {CONNECT}, `ncclTopoPostset`",
    ),
    AttributeRule(
        "graph",
        "graph",
        "nchannels",
        True,
        r"[1-9][0-9]*",
        "the number of `channel` elements. NCCL reads zeros for missing channels",
        f"{SEARCH}, `ncclTopoGetGraphFromXmlSub`",
    ),
    AttributeRule(
        "graph",
        "graph",
        "speedintra",
        True,
        _DECIMAL,
        "Gbyte/s of one channel inside a host",
        f"{SEARCH}, `ncclTopoGetGraphFromXmlSub`",
    ),
    AttributeRule(
        "graph",
        "graph",
        "speedinter",
        True,
        _DECIMAL,
        "Gbyte/s of one channel between hosts",
        f"{SEARCH}, `ncclTopoGetGraphFromXmlSub`",
    ),
    AttributeRule(
        "graph",
        "graph",
        "latencyinter",
        False,
        _DECIMAL,
        "0 if absent",
        f"{SEARCH}, `ncclTopoGetGraphFromXmlSub`",
    ),
    *(
        AttributeRule(
            "graph",
            "graph",
            key,
            True,
            _PATHS,
            f"longest path between {subject}: LOC, NVL, NVB, PIX, PXB, P2C, PXN, PHB or SYS. "
            "Without this attribute the program crashes",
            f"{SEARCH}, `ncclTopoGetGraphFromXmlSub`; {HEADER}, `kvConvertToInt`",
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
        f"{SEARCH}, `ncclTopoGetGraphFromXmlSub`",
    ),
    AttributeRule(
        "graph",
        "net",
        "dev",
        True,
        _HEX,
        "hexadecimal, with or without `0x`: number of a `net` of the topology",
        f"{SEARCH}, `ncclTopoGetChannelFromXml`; src/graph/topo.h, `ncclTopoIdToNetDev`",
    ),
    AttributeRule(
        "graph",
        "gpu",
        "dev",
        True,
        _HEX,
        "hexadecimal, with or without `0x`: number of a GPU of the communicator",
        f"{SEARCH}, `ncclTopoGetChannelFromXml`",
    ),
    AttributeRule(
        "graph",
        "gpu",
        "rank",
        False,
        _NUMBER,
        "rank in the communicator; if absent, NCCL finds the rank by `dev`",
        f"{SEARCH}, `ncclTopoGetChannelFromXml`",
    ),
)
"""Attributes that NCCL reads."""

TEXTS: tuple[TextRule, ...] = (
    TextRule(
        "start of the file",
        "the element `system` or `graphs`, without an XML declaration",
        f"{XML}, `xmlGetNode`, `ncclTopoGetXmlFromFile`",
    ),
    TextRule("between elements", "only blanks, `\\n` and `\\r`; no tabs and no text", f"{XML}, `xmlGetNode`"),
    TextRule(
        "attributes",
        "one blank before each attribute, none before `/>` or `>`; quotes are `\"` or `'`; "
        "entities such as `&amp;` are not decoded",
        f"{XML}, `xmlGetNode`, `xmlGetValue`",
    ),
    TextRule(
        "closing tag", "`</NAME>` with the name of the open element, without blanks", f"{XML}, `xmlLoadSub`"
    ),
    TextRule("comments", "`<!-- ... -->`, only between elements", f"{XML}, `xmlSkipComment`"),
    TextRule(
        "lengths",
        f"names and values have at most {MAX_LENGTH} characters",
        f"{XML}, `xmlGetToken`, `xmlGetValue`",
    ),
    TextRule(
        "counts",
        f"at most {MAX_ATTRIBUTES} attributes of an element (NCCL ignores the others); at most {MAX_CHILDREN} "
        f"children of an element; at most {MAX_ELEMENTS['topology']} elements of a topology, including those that NCCL "
        f"adds; at most {MAX_ELEMENTS['graph']} elements of a graph file",
        f"{XML}, `xmlGetNode`, `xmlLoadSub`; {HEADER}; src/graph/topo.h",
    ),
    TextRule(
        "other elements",
        "NCCL ignores other elements; if such an element contains elements, NCCL's reader fails",
        f"{XML}, `xmlLoadSub`",
    ),
    TextRule(
        "addresses and names",
        "each `busid` of a `pci`, and each `name` of a `net`, occurs once: NCCL uses only the first element",
        f"{HEADER}, `xmlFindTagKv`",
    ),
    TextRule(
        "`nic`",
        "inside `pci`; for an interface without a PCI device, inside `cpu`",
        f"{XML}, `ncclTopoXmlLoadCpu`, `ncclTopoFillNet`",
    ),
    TextRule(
        "channel",
        "in this order: the `net` where the ring enters; each GPU of the communicator on this host; "
        "the `net` where the ring leaves",
        f"{SEARCH}, `ncclTopoGetChannelFromXml`, `ncclTopoGetXmlFromChannel`",
    ),
    TextRule(
        "channels",
        f"at most {MAX_CHANNELS}, and the same number on all hosts. Ring and tree both use the smaller of their two "
        "numbers",
        f"src/init.cc, `initTransportsRank`; {CONNECT}, `ncclTopoPostset`",
    ),
    TextRule(
        "one GPU per host",
        "the first `net` of a channel serves both directions",
        f"{SEARCH}, `ncclTopoGetNetDev`",
    ),
    TextRule(
        "order of the hosts",
        "all channels have the order of the ranks. A file sets only the order of GPUs and NICs inside a host",
        f"{CONNECT}, `connectRings`",
    ),
)
"""Rules on more than one attribute."""

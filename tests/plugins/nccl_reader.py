"""A reader of NCCL's topology and graph files, character by character as NCCL reads them, without its tolerance.

What makes NCCL fail, read zeros, or ignore a part is an error here. Elements, attributes and limits are those of the
table of rules; the parser and the rules between the two files are written a second time, from the source that the table
names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from testbed.lab.hosts.nccl_rules import (
    ATTRIBUTE_RULES,
    CHILDREN_BY_ELEMENT,
    MAX_ATTRIBUTE_COUNT,
    MAX_CHANNEL_COUNT,
    MAX_CHILD_COUNT,
    MAX_ELEMENT_COUNT_BY_FILE,
    MAX_TEXT_LENGTH,
)

RULES = {(rule.file, rule.element, rule.attribute): rule for rule in ATTRIBUTE_RULES}
ENDS_OF_NAMES = " >/\n\r"


class ReaderError(Exception):
    """NCCL would fail, or would not use a part of the file."""


@dataclass
class Node:
    """An element: how its tag ended (`open`, `close`, `single`), its attributes, and the elements inside."""

    name: str
    kind: str
    attributes: dict[str, str] = field(default_factory=dict)
    inside: list[Node] = field(default_factory=list)

    def all(self, name: str) -> Iterator[Node]:
        """Yield the elements of a name, this one included."""
        if self.name == name:
            yield self
        for each in self.inside:
            yield from each.all(name)


class Characters:
    """The text, a character at a time; reading beyond its end fails."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def next(self) -> str:
        if self.at == len(self.text):
            raise ReaderError("the file ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def value(self) -> str:
        quote = self.next()
        if quote not in "\"'":
            raise ReaderError("a value without quotes")
        value = ""
        while (character := self.next()) != quote:
            value += character
            if len(value) > MAX_TEXT_LENGTH:
                raise ReaderError("a value is too long")
        return value

    def token(self, *, may_have_value: bool) -> tuple[str, str | None, str]:
        """Return a name, its value if one follows, and the character after both."""
        name = ""
        while (character := self.next()) not in ENDS_OF_NAMES:
            if character == "=":
                if not may_have_value:
                    raise ReaderError(f"an unexpected value of {name}")
                return name, self.value(), self.next()
            name += character
            if len(name) > MAX_TEXT_LENGTH:
                raise ReaderError("a name is too long")
        return name, None, character

    def node(self) -> Node | None:
        """Return the next tag; None at the end of the file."""
        while self.at < len(self.text) and self.text[self.at] in " \n\r":
            self.at += 1
        if self.at == len(self.text):
            return None
        if (character := self.next()) != "<":
            raise ReaderError(f"expected <, got {character!r}")
        name, _, last = self.token(may_have_value=False)
        if name.startswith("!--"):
            last_three = ("..." + name[3:] + last)[-3:]
            while last_three != "-->":
                last_three = last_three[1:] + self.next()
            return self.node()
        if not name and last == "/":
            name, _, last = self.token(may_have_value=False)
            if last != ">":
                raise ReaderError(f"{last!r} in the closing tag of {name}")
            return Node(name, "close")
        node = Node(name, "open")
        while last == " ":
            key, value, last = self.token(may_have_value=True)
            if value is None or not key or key in node.attributes:
                raise ReaderError(f"{name}: attribute {key!r} has no value of its own")
            node.attributes[key] = value
        if len(node.attributes) > MAX_ATTRIBUTE_COUNT:
            raise ReaderError(f"{name}: attributes are ignored")
        if last == "/":
            node.kind = "single"
            _, _, last = self.token(may_have_value=False)
        if last != ">":
            raise ReaderError(f"expected >, got {last!r}")
        return node


def read_tree(text: str, file: str) -> Node:
    """Return the only element of a file, with attributes and nesting as the table of rules has them."""
    characters = Characters(text)
    whole = Node("", "open")
    count = read_inside(characters, whole, file, 0)
    if count == 0:
        raise ReaderError("the file has no element")
    if len(whole.inside) > 1:
        raise ReaderError("NCCL uses the first element of the file")
    return whole.inside[0]


def read_inside(characters: Characters, head: Node, file: str, count: int) -> int:
    """Read the elements of `head` up to its closing tag; return how many elements the file has up to here."""
    if head.kind == "single":
        return count
    while True:
        if count > MAX_ELEMENT_COUNT_BY_FILE[file]:
            raise ReaderError("too many elements")
        node = characters.node()
        if node is None:
            if head.name:
                raise ReaderError(f"{head.name} is not closed")
            return count
        if node.kind == "close":
            if node.name != head.name:
                raise ReaderError(f"{head.name} is closed by {node.name or 'nothing'}")
            return count
        if node.name not in CHILDREN_BY_ELEMENT[file].get(head.name, ()):
            raise ReaderError(f"{node.name} is ignored in {head.name or 'the file'}")
        check_attributes(node, file)
        if len(head.inside) == MAX_CHILD_COUNT:
            raise ReaderError(f"too many elements in {head.name}")
        head.inside.append(node)
        count = read_inside(characters, node, file, count + 1)


def check_attributes(node: Node, file: str) -> None:
    for (rule_file, element, attribute), rule in RULES.items():
        if (
            (rule_file, element) == (file, node.name)
            and rule.is_required
            and attribute not in node.attributes
        ):
            raise ReaderError(f"{node.name} has no {attribute}")
    for attribute, value in node.attributes.items():
        rule = RULES.get((file, node.name, attribute))
        if rule is None:
            raise ReaderError(f"{node.name}: {attribute} is not read")
        if not re.fullmatch(rule.pattern, value):
            raise ReaderError(f"{node.name}: {attribute} is {value!r}")


@dataclass(frozen=True)
class ReadTopology:
    """A topology as NCCL understands it: NICs by number, and the address of each GPU by number."""

    nets: dict[int, str]
    speeds: dict[str, int]
    gpus: dict[int, str]
    address_of: dict[str, str]
    """Address of the PCI device of each NIC that has one."""


def read_topology(text: str) -> ReadTopology:
    system = read_tree(text, "topology")
    for cpu in system.all("cpu"):
        if cpu.attributes["arch"] == "x86_64":
            vendor = cpu.attributes.get("vendor")
            if vendor is None:
                raise ReaderError("cpu has no vendor")
            if vendor != "AuthenticAMD" and not {"familyid", "modelid"} <= set(cpu.attributes):
                raise ReaderError("cpu has no familyid or modelid")
    check_once(node.attributes["numaid"] for node in system.all("cpu"))
    check_once(node.attributes["busid"] for node in system.all("pci"))
    check_once(node.attributes["name"] for node in system.all("net"))
    check_once(int(node.attributes["dev"], 0) for node in system.all("net"))
    gpus, address_of = {}, {}
    for pci in system.all("pci"):
        kinds = {each.name for each in pci.inside}
        address, kind = pci.attributes["busid"], pci.attributes["class"]
        if "pci" in kinds and (kinds != {"pci"} or re.match("0x0[23]|0x0680", kind)):
            raise ReaderError(f"{address} is no bridge")
        if "gpu" in kinds and not kind.startswith("0x03"):
            raise ReaderError(f"{address} is no GPU")
        for each in pci.inside:
            if each.name == "gpu":
                gpus[int(each.attributes["dev"], 0)] = address
            if each.name == "nic":
                address_of |= {net.attributes["name"]: address for net in each.inside}
    nets = {int(net.attributes["dev"], 0): net.attributes["name"] for net in system.all("net")}
    speeds = {net.attributes["name"]: int(net.attributes["speed"], 0) for net in system.all("net")}
    return ReadTopology(nets, speeds, gpus, address_of)


def check_once(values: Iterator[object]) -> None:
    for value, times in Counter(values).items():
        if times > 1:
            raise ReaderError(f"{value} occurs {times} times")


@dataclass(frozen=True)
class ReadChannel:
    """A channel as NCCL understands it: the names of its NICs and the numbers of its GPUs, in order."""

    enters: str
    gpus: tuple[int, ...]
    leaves: str


def read_graphs(text: str, topology: ReadTopology, gpus: int) -> dict[int, list[ReadChannel]]:
    """Return the channels of each graph by its id, for a host whose ranks use `gpus` GPUs."""
    root = read_tree(text, "graph")
    check_once(int(graph.attributes["id"], 0) for graph in root.inside)
    return {
        int(graph.attributes["id"], 0): list(read_channels(graph, topology, gpus)) for graph in root.inside
    }


def read_channels(graph: Node, topology: ReadTopology, gpus: int) -> Iterator[ReadChannel]:
    values = graph.attributes
    if int(values["nchannels"]) != len(graph.inside) or len(graph.inside) > MAX_CHANNEL_COUNT:
        raise ReaderError(f"{len(graph.inside)} channels, but nchannels is {values['nchannels']}")
    if float(values["speedintra"]) <= 0 or float(values["speedinter"]) <= 0:
        raise ReaderError("a speed of 0")
    if (values["id"], values["pattern"]) not in {("0", "4"), ("1", "3")}:
        raise ReaderError(f"graph {values['id']} has pattern {values['pattern']}")
    orders = set()
    for channel in graph.inside:
        names = [each.name for each in channel.inside]
        if names != ["net", *["gpu"] * gpus, "net"]:
            raise ReaderError(f"a channel of {' '.join(names)}")
        numbers = [int(each.attributes["dev"], 16) for each in channel.inside]
        if sorted(numbers[1:-1]) != list(range(gpus)):
            raise ReaderError(f"a channel does not pass each GPU once: {numbers[1:-1]}")
        for number in (numbers[0], numbers[-1]):
            if number not in topology.nets:
                raise ReaderError(f"the topology has no net {number}")
        if values["crossnic"] == "0" and numbers[0] != numbers[-1]:
            raise ReaderError("a channel changes its NIC, but crossnic is 0")
        orders.add(tuple(numbers[1:-1]))
        yield ReadChannel(topology.nets[numbers[0]], tuple(numbers[1:-1]), topology.nets[numbers[-1]])
    if values["samechannels"] == "1" and len(orders) > 1:
        raise ReaderError("the channels differ, but samechannels is 1")

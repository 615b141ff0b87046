"""Parsers for policy rules, packet filters and queues of a host: what affects packets besides routes.

lightbed installs no policy rule and no packet filter, and only simulated NICs have queues. So lightbed reports every
rule that can stop, change, divert or delay packets of the lab. It ignores rules for other interfaces, such as container
bridges.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import IPv4Network
from typing import Any

_NFT_VERDICTS = frozenset(
    {"drop", "reject", "queue", "dnat", "snat", "masquerade", "redirect", "tproxy", "fwd", "dup", "synproxy", "mangle"}
)  # fmt: skip
"""Statements of nft that stop, change or divert a packet."""
_IPTABLES_TARGETS = frozenset(
    {"DROP", "REJECT", "NFQUEUE", "DNAT", "SNAT", "MASQUERADE", "REDIRECT", "TPROXY", "TEE", "NETMAP", "TTL", "TCPMSS"}
)  # fmt: skip
"""Targets of iptables that stop, change or divert a packet."""
_INTERFACE_KEYS = frozenset({"iif", "iifname", "oif", "oifname"})
_PLAIN_QUEUE_KINDS = frozenset(
    {"noqueue", "mq", "mqprio", "fq", "fq_codel", "pfifo_fast", "pfifo", "bfifo", "prio", "sfq", "cake", "tbf", "htb"}
)  # fmt: skip
"""Queueing disciplines that delay packets only by their rate, which another check covers."""
INGRESS_KINDS = frozenset({"ingress", "clsact"})
"""Queueing disciplines whose filters process packets before the kernel."""
_CLASS_RATE = re.compile(r"class \w+ (\S+) .*?\brate ([\d.]+)([KMGT]?)bit\b")
_MEGABITS_BY_PREFIX = {"": 1e-6, "K": 1e-3, "M": 1.0, "G": 1e3, "T": 1e6}


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One policy rule. `source` and `target` are blocks or `all`; `action` is empty for a lookup in `table`.

    `description` resembles the line of `ip rule`. A rule with `not` matches packets outside its blocks, so both blocks
    are `all` here. `input_interface` is the interface at which packets must arrive, if any; `lo` stands for the host's
    own packets. `needs_mark` is True if packets need a mark. `looks_up_main` is True if the rule looks up every packet
    in the table `main`, perhaps without default routes.
    """

    priority: int
    source: str
    target: str
    table: str
    action: str
    description: str
    input_interface: str = ""
    needs_mark: bool = False
    looks_up_main: bool = False


@dataclass(frozen=True, slots=True)
class PacketFilter:
    """One rule, or the policy of a chain, that can stop, change or divert packets.

    It matches packets that use one of `nics` (a name may end with `*`) and have addresses in all `blocks`. An empty
    tuple matches any packet. With `is_at_nic`, the filter acts before the kernel sees the packet.
    """

    description: str
    nics: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    is_at_nic: bool = False

    def concerns(self, nics: Iterable[str], networks: Iterable[IPv4Network]) -> bool:
        """Return whether the filter may match packets of these interfaces with addresses of these networks."""
        matches_nic = not self.nics or any(
            fnmatchcase(name, pattern) for pattern in self.nics for name in nics
        )
        return matches_nic and all(overlaps(block, networks) for block in self.blocks)


def overlaps(block: str, networks: Iterable[IPv4Network]) -> bool:
    """Return whether a block overlaps one of the networks.

    Text that is not a block, such as `all` or `default`, overlaps every network. An IPv6 block overlaps none.
    """
    try:
        block_network = IPv4Network(block, strict=False)
    except ValueError:
        return ":" not in block
    return any(block_network.overlaps(network) for network in networks)


def parse_policy_rules(entries: Iterable[Mapping[str, Any]]) -> tuple[PolicyRule, ...]:
    """Return the rules in the output of `ip -j rule show`, in the order in which the kernel applies them."""
    return tuple(
        PolicyRule(
            priority=int(entry["priority"]),
            source=_read_block(entry, "src") if "not" not in entry else "all",
            target=_read_block(entry, "dst") if "not" not in entry else "all",
            table=str(entry.get("table", "")),
            action=str(entry.get("action", "")),
            description=" ".join(_describe_rule(entry)),
            input_interface=str(entry.get("iif", "")),
            needs_mark="fwmark" in entry and "not" not in entry,
            looks_up_main=entry.get("table") == "main"
            and entry.get("src") == "all"
            and entry.keys() <= {"priority", "src", "table", "suppress_prefixlength"},
        )
        for entry in entries
    )


def _read_block(entry: Mapping[str, Any], side: str) -> str:
    address = str(entry.get(side, "all"))
    return address if address == "all" else f"{address}/{entry.get(f'{side}len', 32)}"


def _describe_rule(entry: Mapping[str, Any]) -> Iterator[str]:
    yield f"{entry['priority']}:"
    yield from ["not"] if "not" in entry else []
    yield f"from {_read_block(entry, 'src')}"
    yield from [f"to {_read_block(entry, 'dst')}"] if "dst" in entry else []
    for name, value in entry.items():
        if name not in ("priority", "not", "src", "srclen", "dst", "dstlen", "table", "action"):
            yield f"{name} {value}"
    yield str(entry["action"]) if "action" in entry else f"lookup {entry.get('table', '')}"


def parse_nft(text: str) -> tuple[PacketFilter, ...]:
    """Return the filters in the output of `nft -j list ruleset`; none if nft is missing or printed something else."""
    try:
        entries = json.loads(text)["nftables"]
    except (ValueError, KeyError, TypeError):
        return ()
    chain_by_key = {
        (chain["family"], chain["table"], chain["name"]): chain
        for entry in entries
        if (chain := entry.get("chain")) is not None
    }
    filters = [
        PacketFilter(
            f"{_describe_chain(key, chain)}: policy drop", _read_devices(chain), is_at_nic=key[0] == "netdev"
        )
        for key, chain in chain_by_key.items()
        if chain.get("policy") == "drop"
    ]
    for entry in entries:
        rule = entry.get("rule")
        # Rules with targets that only iptables understands are read from iptables-save.
        if rule is None or not (verdicts := sorted(_collect_keys(rule["expr"]) & _NFT_VERDICTS)):
            continue
        key = rule["family"], rule["table"], rule["chain"]
        chain = chain_by_key.get(key, {})
        matches = [expression["match"] for expression in rule["expr"] if "match" in expression]
        words = " ".join([*(_describe_match(match) for match in matches), *verdicts])
        filters.append(
            PacketFilter(
                f"{_describe_chain(key, chain)}: {words}",
                nics=_read_devices(chain) or _find_required_values(matches, "meta", "key", _INTERFACE_KEYS),
                blocks=_find_required_values(matches, "payload", "field", ("saddr", "daddr")),
                is_at_nic=key[0] == "netdev",
            )
        )
    return tuple(filters)


def _describe_chain(key: tuple[str, str, str], chain: Mapping[str, Any]) -> str:
    family, table, name = key
    hook = f" (hook {chain['hook']})" if "hook" in chain else ""
    return f"table {family} {table}, chain {name}{hook}"


def _read_devices(chain: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the NICs of a chain of the family netdev, as far as nft prints them."""
    device = chain.get("dev", ())
    return (device,) if isinstance(device, str) else tuple(device)


def _collect_keys(document: Any) -> set[str]:
    """Return every key of a JSON document at any depth, because a verdict map holds its verdicts inside."""
    if isinstance(document, Mapping):
        return set(document).union(*map(_collect_keys, document.values()))
    return set().union(*map(_collect_keys, document)) if isinstance(document, list) else set()


def _find_required_values(
    matches: Iterable[Mapping[str, Any]], kind: str, field: str, names: Collection[str]
) -> tuple[str, ...]:
    """Return the interfaces or addresses that a rule requires by `==`. Sets of several values are left out."""
    values = []
    for match in matches:
        expression, operand = match["left"], match["right"]
        if (
            match["op"] != "=="
            or not isinstance(expression, Mapping)
            or expression.get(kind, {}).get(field) not in names
        ):
            continue
        if isinstance(operand, Mapping) and "prefix" in operand:
            operand = f"{operand['prefix']['addr']}/{operand['prefix']['len']}"
        if isinstance(operand, str):
            values.append(operand)
    return tuple(values)


def _describe_match(match: Mapping[str, Any]) -> str:
    field = match["left"]
    if isinstance(field, Mapping):
        (kind, details), *_ = field.items()
        field = f"{details['protocol']} {details['field']}" if kind == "payload" and "field" in details else (
            str(details["key"]) if isinstance(details, Mapping) and "key" in details else kind
        )  # fmt: skip
    operand = match["right"]
    if isinstance(operand, Mapping):
        prefix = operand.get("prefix")
        operand = f"{prefix['addr']}/{prefix['len']}" if prefix else json.dumps(operand)
    operator = "" if match["op"] == "==" else f" {match['op']}"
    return f"{field}{operator} {operand}"


def parse_iptables(text: str) -> tuple[PacketFilter, ...]:
    r"""Return the filters in the output of `iptables-save`.

    >>> text = (
    ...     "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -o docker0 -j DROP\n-A FORWARD -p tcp -j ACCEPT\nCOMMIT"
    ... )
    >>> for packet_filter in parse_iptables(text):
    ...     print(packet_filter.description, packet_filter.nics)
    iptables filter, chain FORWARD: policy DROP ()
    iptables filter: -A FORWARD -o docker0 -j DROP ('docker0',)
    """
    filters, table = [], ""
    for line in text.splitlines():
        words = line.split()
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith(":") and words[1:2] == ["DROP"]:
            filters.append(PacketFilter(f"iptables {table}, chain {words[0][1:]}: policy DROP"))
        elif line.startswith("-A") and "-j" in words and words[words.index("-j") + 1] in _IPTABLES_TARGETS:
            options = [
                (option, value)
                for negation, option, value in zip(["", *words], words, words[1:], strict=False)
                if negation != "!"
            ]
            nics = tuple(value.replace("+", "*") for option, value in options if option in ("-i", "-o"))
            blocks = tuple(value for option, value in options if option in ("-s", "-d"))
            filters.append(PacketFilter(f"iptables {table}: {line}", nics[:1], blocks))
    return tuple(dict.fromkeys(filters))


def parse_queues(queues: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return descriptions of the queueing disciplines that may drop, delay or divert packets, by interface."""
    notes_by_interface: dict[str, list[str]] = {}
    for queue in queues:
        if queue["kind"] in INGRESS_KINDS:
            notes_by_interface.setdefault(queue["dev"], []).append(
                f"{queue['kind']}: filters take incoming packets"
            )
        elif queue["kind"] not in _PLAIN_QUEUE_KINDS:
            notes_by_interface.setdefault(queue["dev"], []).append(f"{queue['kind']} {queue['handle']}")
    return {device: ", ".join(interface_notes) for device, interface_notes in notes_by_interface.items()}


def parse_class_rates(text: str) -> dict[str, float]:
    r"""Return the lowest rate in Mbit/s of the classes of each interface, from lines `NIC class ...`.

    >>> parse_class_rates(
    ...     "nic1 class htb 2:1 root prio 0 rate 32Gbit\nnic1 class htb 2:2 root prio 1 rate 10Mbit"
    ... )
    {'nic1': 10.0}
    """
    rate_by_interface: dict[str, float] = {}
    for line in text.splitlines():
        device, _, class_text = line.partition(" ")
        if match := _CLASS_RATE.match(class_text):
            rate_mbps = float(match[2]) * _MEGABITS_BY_PREFIX[match[3]]
            rate_by_interface[device] = min(rate_mbps, rate_by_interface.get(device, rate_mbps))
    return rate_by_interface

"""The optical fabric in the kernel: far ends of the hosts' NICs, and one-way redirects between them.

Each host NIC is one end of a veth pair. The other end, its *far end*, is in the fabric namespace. A traffic-control
filter replaces the light from the transmitter of NIC x to the receiver of NIC y. The filter redirects all packets that
enter at the far end of x to the far end of y, whatever their ethertype. The far end of a dark receiver is set down, so
that the host sees NO-CARRIER.

There is a difference from fibres: a veth pair loses carrier in both directions at once. A NIC with a dark receiver
therefore cannot transmit, even if its own light still arrives somewhere. Ethernet NICs usually behave in the same way:
a loss of receive light takes the link down (local fault), and the MAC stops sending.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sim.twins.hosts import netns

# Each namespace numbers its interfaces separately. If a NIC and its far end have the same number, the kernel treats the
# pair as a plain device, and reports a loss of carrier up to a second late. High numbers of far ends prevent this.
_FIRST_INDEX = 1001
_FILTER_OPTIONS = "ingress protocol all pref 1"


@dataclass(frozen=True, slots=True)
class LinkShape:
    """Traffic shaping of a NIC: a token bucket with rate, burst (in units of 1024 bytes) and latency, and fair queues.

    Queues behave like `fq_codel`, the default of hosts: connections take turns, and each gets its share of a link. The
    source port of a packet selects its queue, so data packets of a connection stay in order. Acknowledgements without
    data, and pings, overtake waiting packets. Otherwise a congested link would slow down connections that send over
    free links.
    """

    rate_mbps: float
    mtu: int
    burst_kb: int = 128
    latency_ms: float = 50.0

    @property
    def token_bucket(self) -> str:
        """The queueing discipline in the syntax of `tc`.

        >>> LinkShape(rate_mbps=100, mtu=9000).token_bucket
        'tbf rate 100000kbit burst 128kb latency 50000us'
        """
        return (
            f"tbf rate {round(self.rate_mbps * 1000)}kbit burst {self.burst_kb}kb"
            f" latency {round(self.latency_ms * 1000)}us"
        )

    @property
    def queue_bytes(self) -> int:
        """Size of each queue in bytes: four times the sum of the burst and the bytes sent during the latency.

        A connection over several hops fills the queue of a shared hop, where a smaller queue loses packets. Measured:
        8 MiB in groups of four over two hops reach 83 % of the link limit with a smaller queue, and 96 % with this.
        """
        return 4 * (round(self.rate_mbps * 1e3 / 8 * self.latency_ms) + self.burst_kb * 1024)

    def make_queue_commands(self, nic: str) -> tuple[str, ...]:
        """Return the `tc` commands that shape a NIC. Tests compare them with a copy in `testbed/node/queues.py`."""
        parent_option = f"dev {nic} parent 2:"
        class_numbers = range(1, 2 + TURNS)
        return (
            f"qdisc add dev {nic} root handle 1: {self.token_bucket}",
            f"qdisc add dev {nic} parent 1:1 handle 2: htb default 2",
            *(
                f"class add {parent_option} classid 2:{number:x} htb rate 32gbit prio {int(number > 1)} quantum"
                f" {QUANTUM_BYTES}"
                for number in class_numbers
            ),
            *(
                f"qdisc add {parent_option}{number:x} handle {number + 2:x}: bfifo limit {self.queue_bytes}"
                for number in class_numbers
            ),
            *(
                f"filter add {parent_option} protocol ip prio 1 u32 {match} flowid 2:1"
                for match in _PRIORITY_MATCHES
            ),
            f"filter add {parent_option} protocol ip prio 1 handle {_TABLE_ID} u32 divisor {TURNS}",
            *(
                f"filter add {parent_option} protocol ip prio 1 u32 ht {_TABLE_ID}{slot:x}: match u32 0 0 flowid"
                f" 2:{slot + 2:x}"
                for slot in range(TURNS)
            ),
            f"filter add {parent_option} protocol ip prio 1 u32 ht 800: {_TCP_MATCH} {_SOURCE_PORT} link {_TABLE_ID}",
        )


TURNS, QUANTUM_BYTES = 16, 18_000
"""Number of classes for connections. Number of bytes that a class sends in its turn: two packets of 9000 bytes."""
_TABLE_ID = "9:"
_TCP_MATCH = "match u8 0x45 0xff at 0 match u8 6 0xff at 9"
_SOURCE_PORT = (
    "hashkey mask 0x001e0000 at 20"  # without the lowest bit, which is the same for all ports of one side
)
_PRIORITY_MATCHES = (
    "match u8 1 0xff at 9 match u16 0 0xff00 at 2",  # ICMP of less than 256 bytes
    *(  # TCP with only the flag ACK and no data: the packet ends after a header of `words` 32-bit words
        f"match u16 {20 + 4 * words} 0xffff at 2 match u8 0x45 0xff at 0 match u8 6 0xff at 9"
        f" match u8 {words << 4} 0xf0 at 32 match u8 0x10 0xff at 33"
        for words in range(5, 16)
    ),
)
"""`u32` matches of packets that overtake others. These packets have no data, so data packets stay in order."""


@dataclass(frozen=True, slots=True)
class FarEnd:
    """The far end of a host NIC.

    `nic` is the label `host/name` of the NIC, and `host_link` its interface in `host_namespace`. `link_name` and
    `link_index` are the interface of the far end in the fabric namespace.
    """

    nic: str
    link_name: str
    link_index: int
    host_namespace: str
    host_link: str


@dataclass(frozen=True, slots=True)
class RedirectCommands:
    """Kernel commands for a change of light, in order of execution: far ends down, filters, far ends up."""

    down_commands: tuple[str, ...]
    filter_commands: tuple[str, ...]
    up_commands: tuple[str, ...]


def make_far_ends(nics_by_host: Mapping[str, tuple[str, Sequence[str]]]) -> tuple[FarEnd, ...]:
    """Return the far ends of all NICs. `nics_by_host` maps a host to its namespace and its NICs."""
    numbered_nics = [
        (host, host_number, namespace, nic, nic_number)
        for host_number, (host, (namespace, nics)) in enumerate(nics_by_host.items())
        for nic_number, nic in enumerate(nics)
    ]
    return tuple(
        FarEnd(f"{host}/{nic}", f"h{host_number}n{nic_number}", _FIRST_INDEX + nic_index, namespace, nic)
        for nic_index, (host, host_number, namespace, nic, nic_number) in enumerate(numbered_nics)
    )


def render_changes(
    light_before: Mapping[str, str], light_after: Mapping[str, str], links_by_nic: Mapping[str, str]
) -> RedirectCommands:
    """Return the kernel commands that change the light from `light_before` to `light_after`.

    Light is (receiver NIC -> transmitter NIC).

    >>> links = {"a/nic1": "h0n0", "b/nic1": "h1n0"}
    >>> render_changes({}, {"b/nic1": "a/nic1"}, links).up_commands
    ('link set h1n0 up',)
    >>> render_changes({"b/nic1": "a/nic1"}, {}, links).filter_commands
    ('filter del dev h0n0 ingress protocol all pref 1',)
    """
    old_receivers = {transmitter: receiver for receiver, transmitter in light_before.items()}
    new_receivers = {transmitter: receiver for receiver, transmitter in light_after.items()}
    removal_lines = [_format_removal(links_by_nic[nic]) for nic in old_receivers if nic not in new_receivers]
    new_redirects = [
        _format_redirect(links_by_nic[nic], links_by_nic[target])
        for nic, target in new_receivers.items()
        if old_receivers.get(nic) != target
    ]
    return RedirectCommands(
        down_commands=tuple(
            f"link set {links_by_nic[nic]} down" for nic in light_before if nic not in light_after
        ),
        filter_commands=(*removal_lines, *new_redirects),
        up_commands=tuple(
            f"link set {links_by_nic[nic]} up" for nic in light_after if nic not in light_before
        ),
    )


def _format_removal(source: str) -> str:
    return f"filter del dev {source} {_FILTER_OPTIONS}"


def _format_redirect(source: str, target: str) -> str:
    """Return the command that redirects all packets that enter at `source` to `target`.

    The fixed handle makes this the only filter of the far end. Without a handle, `replace` would add a second filter.
    """
    return (
        f"filter replace dev {source} {_FILTER_OPTIONS} handle 800::800 u32 match u32 0 0"
        f" action mirred egress redirect dev {target}"
    )


class Fabric:
    """The fabric namespace of one lab. It renders the light of the plant as redirects."""

    def __init__(self, namespace: str, far_ends: Iterable[FarEnd]) -> None:
        self.namespace = namespace
        self.far_ends = tuple(far_ends)
        self._links_by_nic = {end.nic: end.link_name for end in self.far_ends}

    def build(self, shape: LinkShape) -> None:
        """Create the veth pairs, with host ends in the namespaces of hosts. Far ends are down, so all NICs are dark.

        Disable IPv6 before any link exists, because the kernel would otherwise give the far ends addresses and announce
        them. Raise `KernelFault` if that fails.
        """
        settings = {f"ipv6/conf/{scope}/disable_ipv6": 1 for scope in ("all", "default")}
        netns.set_sysctls(self.namespace, settings)
        link_lines = [
            f"link add {end.link_name} index {end.link_index} mtu {shape.mtu} type veth"
            f" peer name {end.host_link} mtu {shape.mtu} netns {end.host_namespace}"
            for end in self.far_ends
        ]
        netns.run_batch("ip", link_lines, self.namespace)
        self._prepare_redirects()

    def _prepare_redirects(self) -> None:
        """Prepare all far ends, and try one redirect. Raise `KernelFault` if the kernel lacks a feature."""
        trial_lines = [
            line
            for end in self.far_ends[:1]
            for line in (_format_redirect(end.link_name, end.link_name), _format_removal(end.link_name))
        ]
        try:
            netns.run_batch(
                "tc",
                [*(f"qdisc add dev {end.link_name} clsact" for end in self.far_ends), *trial_lines],
                self.namespace,
            )
        except netns.KernelFault as error:
            hint = (
                "Load the kernel modules sch_ingress, cls_u32 and act_mirred, or set `hosts_mode` to `model`"
            )
            raise netns.KernelFault(error.what, hint=hint, code="no_redirects") from error

    def render(self, light_before: Mapping[str, str], light_after: Mapping[str, str]) -> None:
        """Make the kernel forward packets along the light paths of `light_after`, and wait until NICs can send.

        A receiver that loses its light loses the carrier before the redirects change. A receiver that gains light gets
        the carrier after they have changed.
        """
        commands = render_changes(light_before, light_after, self._links_by_nic)
        netns.run_batch("ip", commands.down_commands, self.namespace)
        netns.run_batch("tc", commands.filter_commands, self.namespace)
        netns.run_batch("ip", commands.up_commands, self.namespace)
        self._await_links_ready(light_after.keys() - light_before.keys())

    def _await_links_ready(self, receivers: Collection[str]) -> None:
        """Wait until NICs with a new carrier can send."""
        links_by_namespace: dict[str, list[str]] = {}
        for end in self.far_ends:
            if end.nic in receivers:
                links_by_namespace.setdefault(end.host_namespace, []).append(end.host_link)
        for namespace, names in links_by_namespace.items():
            netns.await_links_ready(namespace, names)

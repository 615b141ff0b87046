"""The optical fabric as the kernel's own: far ends of the hosts' NICs, and one-way redirects between them.

Each host NIC is one end of a veth pair; the other, its *far end*, lies in the fabric namespace. Light from the
transmitter of NIC x that reaches the receiver of NIC y is one traffic-control filter: whatever enters at the far
end of x leaves at the far end of y, whatever its ethertype. A receiver without light has its far end set down, so
that the host sees NO-CARRIER.

Where this differs from glass: a veth pair loses carrier in both directions at once. A NIC whose receiver is dark
therefore cannot transmit either, even where its own light still arrives somewhere. Ethernet NICs behave so too
as a rule: loss of receive light takes the link down (local fault), and the MAC stops sending.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sim.twins.hosts import netns

# Interface numbers are counted per namespace. When a NIC and its far end happen to have the same number the kernel
# takes the pair for a plain device and reports its loss of carrier up to a second late; so far ends start high.
_FIRST_INDEX = 1001
_FILTER = "ingress protocol all pref 1"


@dataclass(frozen=True, slots=True)
class LinkShape:
    """Shape of the traffic on a NIC of the lab.

    Token bucket `rate_mbps` with `burst_kb` (1024 bytes) and `latency_ms`. Packets wait as they do in `fq_codel`, which
    hosts have by default: connections take turns, so that each gets its share of a link, and acknowledgements without
    data, and pings, pass those that wait, or they would slow down connections whose own links are free. Connections are
    told apart by their source port; what carries data of one stays in its order.
    """

    rate_mbps: float
    mtu: int
    burst_kb: int = 128
    latency_ms: float = 50.0

    @property
    def token_bucket(self) -> str:
        """The queueing discipline as `tc` writes it.

        >>> LinkShape(rate_mbps=100, mtu=9000).token_bucket
        'tbf rate 100000kbit burst 128kb latency 50000us'
        """
        return (
            f"tbf rate {round(self.rate_mbps * 1000)}kbit burst {self.burst_kb}kb"
            f" latency {round(self.latency_ms * 1000)}us"
        )

    @property
    def queue_bytes(self) -> int:
        """Bytes that wait at most in each turn: four times those of the latency, and of the burst.

        A connection over several hops fills the queue of the hop that it shares: with less it loses packets there, and
        waits for them (of 8 MiB in groups of four over two hops 83 % of the link limit instead of 96 %).
        """
        return 4 * (round(self.rate_mbps * 1e3 / 8 * self.latency_ms) + self.burst_kb * 1024)

    def queues(self, nic: str) -> tuple[str, ...]:
        """Return the commands of `tc` that shape a NIC. `testbed/node/queues.py` makes them again, see its tests."""
        own = f"dev {nic} parent 2:"
        classes = range(1, 2 + TURNS)
        return (
            f"qdisc add dev {nic} root handle 1: {self.token_bucket}",
            f"qdisc add dev {nic} parent 1:1 handle 2: htb default 2",
            *(
                f"class add {own} classid 2:{number:x} htb rate 32gbit prio {int(number > 1)} quantum {QUANTUM}"
                for number in classes
            ),
            *(
                f"qdisc add {own}{number:x} handle {number + 2:x}: bfifo limit {self.queue_bytes}"
                for number in classes
            ),
            *(f"filter add {own} protocol ip prio 1 u32 {match} flowid 2:1" for match in _PASSING),
            f"filter add {own} protocol ip prio 1 handle {_TABLE} u32 divisor {TURNS}",
            *(
                f"filter add {own} protocol ip prio 1 u32 ht {_TABLE}{turn:x}: match u32 0 0 flowid 2:{turn + 2:x}"
                for turn in range(TURNS)
            ),
            f"filter add {own} protocol ip prio 1 u32 ht 800: {_HAS_PORTS} {_SOURCE_PORT} link {_TABLE}",
        )


TURNS, QUANTUM = 16, 18_000
"""Classes over which connections are spread, and bytes that each sends in its turn: two packets of 9,000."""
_TABLE = "9:"
_HAS_PORTS = "match u8 0x45 0xff at 0 match u8 6 0xff at 9"
_SOURCE_PORT = "hashkey mask 0x001e0000 at 20"  # without its lowest bit, in which those of one side are alike
_PASSING = (
    "match u8 1 0xff at 9 match u16 0 0xff00 at 2",  # ICMP of less than 256 bytes
    *(  # TCP with the flag ACK alone, whose packet ends with its header of so many words
        f"match u16 {20 + 4 * words} 0xffff at 2 match u8 0x45 0xff at 0 match u8 6 0xff at 9"
        f" match u8 {words << 4} 0xf0 at 32 match u8 0x10 0xff at 33"
        for words in range(5, 16)
    ),
)
"""Packets that pass those that wait, as `u32` matches them. None carries data that could overtake its own."""


@dataclass(frozen=True, slots=True)
class FarEnd:
    """The fabric's end of one host NIC: `nic` is its label `host/name`, `link` the interface in the fabric."""

    nic: str
    link: str
    index: int
    host_namespace: str
    host_link: str


@dataclass(frozen=True, slots=True)
class Rendering:
    """One change of light as commands to the kernel, in this order: far ends down, filters, far ends up."""

    down: tuple[str, ...]
    filters: tuple[str, ...]
    up: tuple[str, ...]


def far_ends(nics_of: Mapping[str, tuple[str, Sequence[str]]]) -> tuple[FarEnd, ...]:
    """Far ends of all NICs, from host name to (its namespace, its NIC names); the names are short and stable."""
    pairs = [
        (host, host_at, namespace, nic, nic_at)
        for host_at, (host, (namespace, nics)) in enumerate(nics_of.items())
        for nic_at, nic in enumerate(nics)
    ]
    return tuple(
        FarEnd(f"{host}/{nic}", f"h{host_at}n{nic_at}", _FIRST_INDEX + at, namespace, nic)
        for at, (host, host_at, namespace, nic, nic_at) in enumerate(pairs)
    )


def changes(before: Mapping[str, str], after: Mapping[str, str], link_of: Mapping[str, str]) -> Rendering:
    """Return the difference between two states of light (receiver NIC -> transmitter NIC) as kernel commands.

    >>> links = {"a/nic1": "h0n0", "b/nic1": "h1n0"}
    >>> changes({}, {"b/nic1": "a/nic1"}, links).up
    ('link set h1n0 up',)
    >>> changes({"b/nic1": "a/nic1"}, {}, links).filters
    ('filter del dev h0n0 ingress protocol all pref 1',)
    """
    old = {transmitter: receiver for receiver, transmitter in before.items()}
    new = {transmitter: receiver for receiver, transmitter in after.items()}
    removed = [_removal(link_of[end]) for end in old if end not in new]
    placed = [
        _redirect(link_of[end], link_of[target]) for end, target in new.items() if old.get(end) != target
    ]
    return Rendering(
        down=tuple(f"link set {link_of[end]} down" for end in before if end not in after),
        filters=(*removed, *placed),
        up=tuple(f"link set {link_of[end]} up" for end in after if end not in before),
    )


def _removal(source: str) -> str:
    return f"filter del dev {source} {_FILTER}"


def _redirect(source: str, target: str) -> str:
    """Return the command that makes everything that enters at `source` leave at `target` from now on.

    The fixed handle makes it the far end's only filter: `replace` without one would add a second.
    """
    return (
        f"filter replace dev {source} {_FILTER} handle 800::800 u32 match u32 0 0"
        f" action mirred egress redirect dev {target}"
    )


class Fabric:
    """The fabric namespace of one lab: a renderer of the plant, whose light it turns into redirects."""

    def __init__(self, namespace: str, ends: Iterable[FarEnd]) -> None:
        self.namespace = namespace
        self.ends = tuple(ends)
        self._link_of = {end.nic: end.link for end in self.ends}

    def build(self, shape: LinkShape) -> None:
        """Make the veth pairs, dark: far ends here and down, host ends in the hosts' namespaces.

        The fabric has no addresses of its own: IPv6 is off before any link exists, or it would announce itself.
        """
        off = {f"ipv6/conf/{scope}/disable_ipv6": 1 for scope in ("all", "default")}
        netns.set_sysctls(self.namespace, off)
        pairs = [
            f"link add {end.link} index {end.index} mtu {shape.mtu} type veth"
            f" peer name {end.host_link} mtu {shape.mtu} netns {end.host_namespace}"
            for end in self.ends
        ]
        netns.batch("ip", pairs, self.namespace)
        self._prepare_redirects()

    def _prepare_redirects(self) -> None:
        """Try one redirect: a kernel that cannot must say so now, not when the first light arrives."""
        trial = [
            line for end in self.ends[:1] for line in (_redirect(end.link, end.link), _removal(end.link))
        ]
        try:
            netns.batch(
                "tc", [*(f"qdisc add dev {end.link} clsact" for end in self.ends), *trial], self.namespace
            )
        except netns.KernelFault as error:
            hint = "Load the kernel modules sch_ingress, cls_u32 and act_mirred, or choose hosts_mode model"
            raise netns.KernelFault(error.what, hint=hint, code="no_redirects") from error

    def render(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """Make the kernel forward as the light goes; done when it returns.

        Light goes out first: a receiver loses its carrier before its redirect, and gets it after.
        """
        rendering = changes(before, after, self._link_of)
        netns.batch("ip", rendering.down, self.namespace)
        netns.batch("tc", rendering.filters, self.namespace)
        netns.batch("ip", rendering.up, self.namespace)
        self._await_ready(after.keys() - before.keys())

    def _await_ready(self, receivers: Collection[str]) -> None:
        """Wait until the NICs that have just got their carrier can send."""
        links: dict[str, list[str]] = {}
        for end in self.ends:
            if end.nic in receivers:
                links.setdefault(end.host_namespace, []).append(end.host_link)
        for namespace, names in links.items():
            netns.await_ready(namespace, names)

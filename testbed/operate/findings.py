"""The table of findings: every kind that a proof of a lab can report, what it means and what to do.

`docs/reference/findings.md` shows the same table; a test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of finding: its meaning, a hint, whether packets are lost by it, and whether it only informs.

    Pairs of hosts that do not reach one another are told only where no finding that `stops_packets` explains it.
    A lab with no findings but those that inform is as planned.
    """

    meaning: str
    hint: str
    stops_packets: bool = True
    only_informs: bool = False


KINDS: dict[str, Kind] = {
    # devices
    "switch_off": Kind(
        "a switch does not answer; its circuits and its light are not judged",
        "check its power, its management cable and the address in the lab file",
    ),
    "host_off": Kind(
        "a host does not answer over SSH; its links are not judged",
        "check its power, its management network and sshd",
    ),
    "not_probed": Kind(
        "a host answers, and a part of the proof cannot run there; what it would tell is not judged",
        "the proof needs root, Python 3, `ip`, `tc` and `ethtool` on the host: the detail says what failed",
        stops_packets=False,
    ),
    "changing": Kind(
        "somebody changes a switch while we look",
        "wait until the other operation has ended, then verify again",
    ),
    "unfinished": Kind(
        "an operation ended before all of its work was done",
        "run `testbed apply` again",
        stops_packets=False,
    ),
    # circuits
    "missing_circuit": Kind("a planned cross-connect is not there", "run `testbed apply`"),
    "extra_circuit": Kind(
        "a cross-connect at a port of the lab is not planned", "run `testbed apply`", stops_packets=False
    ),
    # light
    "no_light": Kind(
        "a monitor of the switch sees no light",
        "check laser and transmit fibre; behind a lit input, the cross-connect",
    ),
    "excess_loss": Kind(
        "light is more than 1 dB weaker than the lab file says",
        "clean the connectors that the detail names, look for a bend, or correct `loss_db`",
        stops_packets=False,
    ),
    "sudden_loss": Kind(
        "a stretch of glass loses more than it did, since a step in its series",
        "clean or straighten what the detail names; after a change of your own, correct `loss_db` and use `--since`",
        stops_packets=False,
    ),
    "slow_loss": Kind(
        "a stretch of glass loses more from day to day",
        "plan the work before the receiver's window ends; the detail names the slope",
        stops_packets=False,
    ),
    "power_out_of_window": Kind(
        "the power at a receiver is outside the window of its own module",
        "too weak: clean the receive fibre; too strong: insert an attenuator",
        stops_packets=False,
    ),
    "no_module_readings": Kind(
        "modules do not report their received power; this only informs, and the lab may be as planned",
        "none is needed; of these receivers only the power at the switch is judged",
        stops_packets=False,
        only_informs=True,
    ),
    "no_carrier": Kind(
        "light leaves the switch, or may, and the NIC has no carrier",
        "check the receive fibre and the module of the NIC",
    ),
    "dark_cable": Kind(
        "both fibres of one NIC are dark",
        "check the cable and the module: it may be out, or the NIC may have no power",
    ),
    # fibres
    "swapped": Kind(
        "fibres, or whole cables, are exchanged",
        "exchange the plugs that the detail names, or correct the lab file; `testbed verify --narrow` tells which",
    ),
    "not_heard": Kind(
        "the NIC has carrier and receives no frame of its sender", "check the fibres that the detail names"
    ),
    "foreign": Kind(
        "frames of another lab or of another run are received",
        "find out who shares these fibres",
        stops_packets=False,
    ),
    # hosts
    "missing_interface": Kind("a host has no interface of that name", "correct the lab file, or the driver"),
    "interface_down": Kind(
        "an interface is administratively down",
        "`ip link set dev NIC up` on the host, then `testbed apply`: its routes went with it",
    ),
    "wrong_master": Kind(
        "a NIC is part of a bridge, a bond or a VRF, which takes what comes in there",
        "`ip link set dev NIC nomaster` on the host, then `testbed apply`",
    ),
    "wrong_mtu": Kind(
        "an interface has another MTU than the lab file", "run `testbed apply`", stops_packets=False
    ),
    "wrong_rate": Kind(
        "a NIC sends at another rate than the lab file",
        "check negotiation (`ethtool NIC`) and queueing discipline (`tc qdisc`), or correct `rate_mbps`",
        stops_packets=False,
    ),
    "wrong_queue": Kind(
        "a NIC has a queueing discipline, a filter of tc or an XDP program that may drop, delay or divert packets",
        "`tc qdisc del dev NIC root`, or `clsact`, `ingress` for `root`; `ip link set dev NIC xdp off`",
    ),
    "packet_filter": Kind(
        "rules of a packet filter may stop, change or divert packets of the lab",
        "remove the rules that the detail names (`nft -a list ruleset`), or restrict them to other NICs",
    ),
    "wrong_rule": Kind(
        "policy rules decide about packets of the lab before its routes are asked",
        "`ip rule del` what the detail names, or restrict it to other addresses",
    ),
    "wrong_address": Kind("an address is missing, or not planned", "run `testbed apply`"),
    "forwarding_off": Kind("a host does not forward packets", "run `testbed apply`"),
    "wrong_sysctl": Kind("a kernel setting is not as planned", "run `testbed apply`"),
    "wrong_neighbour": Kind(
        "a neighbour entry is missing, has another MAC address or is not permanent", "run `testbed apply`"
    ),
    "missing_route": Kind("planned routes are missing", "run `testbed apply`"),
    "wrong_route": Kind(
        "routes lead over another link than planned, or one to a part of a host's addresses is taken instead",
        "run `testbed apply`",
    ),
    "extra_route": Kind(
        "routes of ours lead to addresses that are not planned", "run `testbed apply`", stops_packets=False
    ),
    "not_configured": Kind(
        "hosts hold nothing of the plan: no address, no route, no neighbour", "run `testbed apply`"
    ),
    "other_topology": Kind("hosts hold routes and neighbours of another topology", "run `testbed apply`"),
    # packets
    "unreachable": Kind(
        "hosts do not answer one another, and no other finding explains it",
        "look for packet filters and policy rules (`nft list ruleset`, `ip rule`) on the hosts of the path",
    ),
    "no_large_packets": Kind(
        "packets of the full size do not pass where small ones do",
        "compare the MTUs on the way (`ip link`, `ip route`), and look for filters by size (`nft list ruleset`)",
        stops_packets=False,
    ),
    "no_tcp": Kind(
        "an exchange over TCP does not pass where pings do",
        "look for packet filters on the hosts of the path (`nft list ruleset`)",
        stops_packets=False,
    ),
    "lossy_path": Kind(
        "packets are lost on the way",
        "look for a dirty connector, errors of the NICs (`ip -s link`), queues and filters at both ends",
        stops_packets=False,
    ),
    "wrong_path": Kind(
        "replies take another number of hops than planned, and no other finding explains it",
        "`testbed path A B` shows the way that the kernels choose",
        stops_packets=False,
    ),
}


def hint_of(kind: str) -> str:
    """Return what to do about a finding of this kind; empty for one that is not in the table."""
    return KINDS[kind].hint if kind in KINDS else ""

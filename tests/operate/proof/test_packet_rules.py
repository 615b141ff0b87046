"""Policy rules, packet filters and queues, read from what iproute2 6.1 and nft 1.0.6 printed, and judged."""

from __future__ import annotations

import json
from ipaddress import IPv4Network

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")

from testbed.lab.hosts.packet_rules import (
    parse_class_rates,
    parse_iptables,
    parse_nft,
    parse_policy_rules,
    parse_queues,
)

LAB = (IPv4Network("10.100.0.0/16"),)
RULES = json.loads("""[
 {"priority":0,"src":"all","table":"local"},
 {"priority":99,"src":"all","dst":"10.100.4.100","action":"prohibit"},
 {"priority":100,"src":"10.100.1.0","srclen":24,"iif":"nic1","table":"77"},
 {"priority":101,"src":"all","fwmark":"0x1","table":"78"},
 {"priority":102,"not":null,"src":"10.1.0.0","srclen":16,"ipproto":"tcp","dport":80,"action":"blackhole"},
 {"priority":32764,"src":"all","table":"main","suppress_prefixlength":0},
 {"priority":32766,"src":"all","table":"main"},
 {"priority":32767,"src":"all","table":"default"}]""")


def nft(*rules, chain=None, family="ip"):
    """Return the document of a table with one chain; each rule is the list of its statements."""
    place = {"family": family, "table": "x"}
    hook = {"type": "filter", "hook": "forward", "prio": 0, "policy": "accept"} if chain is None else chain
    rows = [{"metainfo": {"json_schema_version": 1}}, {"table": {"family": family, "name": "x", "handle": 1}}]
    rows.append({"chain": place | {"name": "y", "handle": 1} | hook})
    rows += [{"rule": place | {"chain": "y", "handle": n, "expr": rule}} for n, rule in enumerate(rules, 2)]
    return json.dumps({"nftables": rows})


def match(left, right, op="=="):
    return {"match": {"op": op, "left": left, "right": right}}


def meta(key):
    return {"meta": {"key": key}}


def payload(protocol, field):
    return {"payload": {"protocol": protocol, "field": field}}


PREFIX = {"prefix": {"addr": "172.17.0.0", "len": 16}}
DROP, ACCEPT = {"drop": None}, {"accept": None}
STOPPING = {
    "ip length > 1500 drop": [match(payload("ip", "length"), 1500, ">"), DROP],
    "numgen < 30 drop": [match({"numgen": {"mode": "random", "mod": 100, "offset": 0}}, 30, "<"), DROP],
    "iifname nic1 drop": [match(meta("iifname"), "nic1"), DROP],
    "iifname nic* drop": [match(meta("iifname"), "nic*"), DROP],
    "iifname != eth0 drop": [match(meta("iifname"), "eth0", "!="), DROP],
    "drop": [{"vmap": {"key": payload("tcp", "dport"), "data": {"set": [[80, DROP], [81, ACCEPT]]}}}],
    "reject": [{"reject": {"type": "icmp", "expr": "port-unreachable"}}],
    "mangle": [{"mangle": {"key": payload("ip", "ttl"), "value": 3}}],
    "ip saddr 10.100.4.0/24 drop": [
        match(payload("ip", "saddr"), {"prefix": {"addr": "10.100.4.0", "len": 24}}),
        DROP,
    ],
}
HARMLESS = {
    "accept": [match(payload("tcp", "dport"), 22), ACCEPT],
    "counter": [{"counter": {"packets": 0, "bytes": 0}}],
    "of a bridge": [match(meta("oifname"), "docker0"), DROP],
    "of the network of a bridge": [match(payload("ip", "saddr"), PREFIX), {"masquerade": None}],
}


@pytest.mark.parametrize("words", STOPPING)
def test_what_may_stop_packets_of_the_lab_concerns_it(words):
    (one,) = parse_nft(nft(STOPPING[words]))
    assert one.description == f"table ip x, chain y (hook forward): {words}"
    assert one.concerns(["nic1", "nic2"], LAB)


@pytest.mark.parametrize("rule", HARMLESS)
def test_what_is_about_others_does_not(rule):
    assert not any(one.concerns(["nic1", "nic2"], LAB) for one in parse_nft(nft(HARMLESS[rule])))


def test_a_policy_and_a_chain_at_a_nic_are_filters():
    policy = {"type": "filter", "hook": "input", "prio": 0, "policy": "drop"}
    assert [one.description for one in parse_nft(nft(chain=policy))] == [
        "table ip x, chain y (hook input): policy drop"
    ]
    ingress = {"type": "filter", "hook": "ingress", "prio": 0, "policy": "accept", "dev": "nic2"}
    (one,) = parse_nft(nft([DROP], chain=ingress, family="netdev"))
    assert (one.nics, one.is_at_nic) == (("nic2",), True)


@pytest.mark.parametrize("text", ["", "{}", "[]", "sh: nft: not found", '{"nftables": [{"metainfo": {}}]}'])
def test_without_nft_or_rules_there_is_no_filter(text):
    assert parse_nft(text) == ()


def test_iptables_of_others_are_passed_over():
    lines = (
        "*nat",
        "-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE",
        "-A OUTPUT ! -d 10.100.1.1 -j DNAT",
    )
    text = "\n".join([*lines, "COMMIT", ""])
    concerned = [one.description for one in parse_iptables(text) if one.concerns(["nic1"], LAB)]
    assert concerned == ["iptables nat: -A OUTPUT ! -d 10.100.1.1 -j DNAT"]


def test_rules_are_asked_in_order_until_main():
    rules = parse_policy_rules(RULES)
    assert [rule.description for rule in rules[1:5]] == [
        "99: from all to 10.100.4.100/32 prohibit",
        "100: from 10.100.1.0/24 iif nic1 lookup 77",
        "101: from all fwmark 0x1 lookup 78",
        "102: not from 10.1.0.0/16 ipproto tcp dport 80 blackhole",
    ]
    assert [rule.looks_up_main for rule in rules] == [False] * 5 + [True, True, False]
    assert [rule.needs_mark for rule in rules[1:5]] == [False, False, True, False]
    assert rules[4].source == "all", "a block after `not` is outside of it"


def test_queues_and_classes():
    plain = [
        {"kind": "tbf", "dev": "nic1", "handle": "1:"},
        {"kind": "fq_codel", "dev": "nic2", "handle": "0:"},
    ]
    assert parse_queues(plain) == {}
    unusual = [
        {"kind": "netem", "dev": "nic1", "handle": "2:"},
        {"kind": "clsact", "dev": "nic1", "handle": "ffff:"},
    ]
    assert parse_queues([*plain, *unusual]) == {"nic1": "netem 2:, clsact: filters take incoming packets"}
    shown = "nic1 class tbf 1:1 parent 1: leaf 2: \nnic1 class htb 2:2 root leaf 4: prio 1 rate 512Kbit ceil 512Kbit\n"
    assert parse_class_rates(shown) == {"nic1": 0.512}

"""NCCL's ring lines: rings are found whichever ranks, threads and communicators the lines come from."""

from __future__ import annotations

from collections import Counter
from math import gcd

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.design.model import RingOrder
from testbed.measure.nccl.log import LogRing, RingLog, find_ring_differences, parse_rings


def ring(nodes: int, stride: int) -> RingOrder:
    return RingOrder(stride, tuple(k * stride % nodes for k in range(nodes)))


def said(rank: int, what: str, *, tid: int = 0) -> str:
    return f"host{rank}:{1000 + rank}:{2000 + tid} [0] NCCL INFO {what}\n"


def started(rank: int, ranks: int, communicator: str, *, tid: int = 0) -> str:
    what = (
        f"[Rank {rank}] ncclCommInitRankConfig comm 0x55d{rank} rank {rank} nranks {ranks} cudaDev 0 nvmlDev 0 "
        f"busId 1000 commId {communicator} - Init START"
    )
    return said(rank, what, tid=tid)


def ring_lines(order: tuple[int, ...], channel: int = 0, *, tid: int = 0) -> list[str]:
    n = len(order)
    return [
        said(rank, f"Ring {channel:02d} : {order[k - 1]} -> {rank} -> {order[(k + 1) % n]}", tid=tid)
        for k, rank in enumerate(order)
    ]


def channel_line(order: tuple[int, ...], channel: int = 0, channels: int = 4) -> str:
    """Format as `dumpLine` prints it: aligned numbers, at most 127 characters, the end replaced by dots."""
    width = len(str(len(order) - 1))
    line = f"Channel {channel:02d}/{channels:02d} :" + "".join(f" {rank:{width}d}" for rank in order)
    return said(0, line if len(line) < 128 else line[:124] + "...")


seen: Counter[str] = Counter()


@settings(max_examples=60)
@given(st.integers(2, 40), st.data())
def check_permutations(nodes: int, data: st.DataObject):
    orders = data.draw(st.lists(st.permutations(range(nodes)), min_size=1, max_size=4))
    lines = [line for channel, order in enumerate(orders) for line in ring_lines(tuple(order), channel)]
    log = parse_rings("".join(data.draw(st.permutations(lines))))
    assert log.problems == ()
    assert {one.channel: one.order for one in log.rings} == {
        channel: tuple(order[order.index(0) :] + order[: order.index(0)])
        for channel, order in enumerate(orders)
    }
    planned = [RingOrder(0, tuple(order)) for order in orders]
    assert find_ring_differences(planned, log) == ()
    seen["several channels"] += len(orders) > 1
    seen["not in order"] += any(list(order) != sorted(order) for order in orders)


@pytest.mark.slow
def test_rings_are_found_from_the_lines_of_single_ranks_in_any_order():
    check_permutations()
    assert min(seen.values()) >= 20


def test_a_log_of_today_with_all_else_around_it():
    lines = [
        "host0:1000:2000 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>\n",
        started(0, 12, "0x5d1"),
        said(0, "NET/IB : Using [0]qedr0:1/RoCE [1]qedr1:1/RoCE ; OOB eth0:10.0.0.1<0>"),
        channel_line(ring(12, 1).order),
        said(0, "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/2"),
        said(0, "Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1"),
    ]
    log = parse_rings("".join(lines))
    assert log.rings == (LogRing("0x5d1", 0, tuple(range(12))),)
    assert log.problems == ()


def test_a_cut_line_gives_no_ring_but_a_problem_with_its_hint():
    order = ring(128, 1).order
    assert channel_line(order).endswith("...\n")
    log = parse_rings(channel_line(order))
    assert log.rings == ()
    assert "NCCL_DEBUG_SUBSYS=INIT,GRAPH" in log.problems[0]


def test_the_lines_of_single_ranks_count_when_the_whole_line_is_cut():
    order = ring(128, 3).order
    log = parse_rings(channel_line(order) + "".join(ring_lines(order)))
    assert log == RingLog((LogRing("", 0, order),), ())


def test_a_rank_that_did_not_speak_is_noticed():
    lines = ring_lines(ring(6, 1).order)
    log = parse_rings("".join(started(rank, 6, "0x1") + lines[rank] for rank in range(3)))
    assert log.rings == ()
    assert log.problems == (
        "channel 0 of communicator 0x1: the log has only ranks 0, 1, 2; collect the logs of all ranks",
    )


def test_two_rings_where_one_belongs_contradict_each_other():
    log = parse_rings("".join(ring_lines(ring(12, 1).order) + ring_lines(ring(12, 5).order)))
    assert log.rings == ()
    assert "contradict" in log.problems[0]


def test_neighbours_must_agree_on_both_sides():
    lines = "".join(ring_lines((0, 1, 2, 3)))
    log = parse_rings(lines.replace("Ring 00 : 1 -> 2 -> 3", "Ring 00 : 0 -> 2 -> 3"))
    assert log.rings == ()
    assert log.problems == ("channel 0: the neighbours of the ranks do not form a ring",)


def test_communicators_are_told_apart_by_thread_and_id():
    text = ""
    for place, communicator in enumerate(("0xa", "0xb")):
        text += "".join(started(rank, 4, communicator, tid=place) for rank in range(4))
    text += "".join(ring_lines((0, 1, 2, 3), tid=0)) + "".join(ring_lines((0, 3, 2, 1), tid=1))
    log = parse_rings(text)
    assert log.rings == (LogRing("0xa", 0, (0, 1, 2, 3)), LogRing("0xb", 0, (0, 3, 2, 1)))
    assert log.communicators == ("0xa", "0xb")


def test_one_communicator_a_stride_with_permuted_ranks_carries_the_planned_rings():
    planned = [ring(12, stride) for stride in (1, 5, 7, 11)]
    text = ""
    for place in range(len(planned)):
        text += "".join(started(rank, 12, f"0x{place + 1}", tid=place) for rank in range(12))
        text += "".join(ring_lines(tuple(range(12)), tid=place))
    log = parse_rings(text)
    assert find_ring_differences(planned, log, [one.order for one in planned]) == ()
    same_ranks_everywhere = find_ring_differences(planned, log)
    assert [finding.kind for finding in same_ranks_everywhere] == ["missing", "missing", "reversed"]


def test_plain_nccl_uses_only_the_stride_one_ring_and_that_is_said():
    log = parse_rings("".join(line for channel in range(4) for line in ring_lines(tuple(range(12)), channel)))
    findings = find_ring_differences([ring(12, 1), ring(12, 5)], log)
    assert [finding.kind for finding in findings] == ["missing"]
    assert findings[0].detail == (
        "the ring of stride 5 (0 -> 5 -> 10 -> 3 -> 8 -> 1 -> 6 -> 11 -> ...) was not used"
    )


def test_an_unplanned_ring_is_named():
    log = RingLog((LogRing("", 0, (0, 1, 2, 3)), LogRing("", 1, (0, 2, 1, 3))), ())
    findings = find_ring_differences([ring(4, 1)], log)
    assert [(finding.kind, finding.order) for finding in findings] == [("unplanned", (0, 2, 1, 3))]


def test_several_ranks_of_a_node_count_once():
    log = RingLog((LogRing("", 0, (0, 1, 2, 3, 4, 5)),), ())
    assert find_ring_differences([RingOrder(1, (0, 1, 2))], log, [(0, 0, 1, 1, 2, 2)]) == ()
    turned = RingLog((LogRing("", 0, (0, 1, 2, 3, 4, 5)),), ())
    assert find_ring_differences([RingOrder(1, (0, 1, 2))], turned, [(0, 1, 1, 2, 2, 0)]) == ()


@pytest.mark.parametrize("nodes", [5, 12, 16])
def test_rotations_are_equal_and_reversals_are_not(nodes: int):
    for stride in (p for p in range(1, nodes) if gcd(p, nodes) == 1):
        order = ring(nodes, stride).order
        rotated = RingLog((LogRing("", 0, order[2:] + order[:2]),), ())
        backwards = RingLog((LogRing("", 0, order[::-1]),), ())
        assert find_ring_differences([ring(nodes, stride)], rotated) == ()
        assert [one.kind for one in find_ring_differences([ring(nodes, stride)], backwards)] == ["reversed"]


@given(st.text(alphabet="Ring0123 :->Chanel/.\n", max_size=200))
def test_arbitrary_lines_give_a_log(text: str):
    log = parse_rings("".join(said(0, line) for line in text.split("\n")))
    assert all(len(set(one.order)) == len(one.order) for one in log.rings)

"""Resharding: against sets of (sample, byte) held and wanted, and in closed form."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from testbed.design.workloads.sharding import (
    Sharding,
    make_backward_resharding,
    make_data_sharding,
    make_dispatch_resharding,
    make_forward_resharding,
    make_placed_sharding,
    make_spaced_sharding,
    reverse_resharding,
    split_evenly,
)


def held(sharding, batch, size, *, sliced):
    """Return (sample, byte) of the output that each server has, worked out sample by sample."""
    cells = {}
    count = len(sharding.servers)
    for place, server in enumerate(sharding.servers):
        row, shard = divmod(place, sharding.shards)
        among = sorted(sharding.servers).index(server)
        parts, part = (count, among) if sharding.way == "expert" else (sharding.replicas, row)
        samples = [s for s in range(batch) if batch * part // parts <= s < batch * (part + 1) // parts]
        cuts, this = (sharding.shards, shard) if sliced else (1, 0)
        numbers = [b for b in range(size) if size * this // cuts <= b < size * (this + 1) // cuts]
        cells[server] = {(sample, number) for sample in samples for number in numbers}
    return cells


def received(resharding):
    total = Counter()
    for _, target, size in zip(*(column.tolist() for column in resharding), strict=True):
        total[target] += size
    return {server: size for server, size in total.items() if size}


def sizes(cells):
    return {server: len(those) for server, those in cells.items() if those}


def test_everybody_gets_what_it_wants_once_from_those_who_have_it(any_sharding):
    rng = np.random.default_rng(5)
    seen = Counter()
    for _ in range(300):
        nodes, batch, size = rng.integers(1, 9), int(rng.integers(1, 12)), int(rng.integers(1, 9))
        producer, consumer = any_sharding(rng, nodes), any_sharding(rng, nodes)
        resharding = make_forward_resharding(producer, consumer, batch, size)
        outputs = held(producer, batch, size, sliced=producer.way == "place")
        wanted = held(consumer, batch, size, sliced=False)
        assert received(resharding) == sizes(wanted)
        for source, target, moved in zip(*(column.tolist() for column in resharding), strict=True):
            assert moved <= len(outputs[source] & wanted[target])
        seen[producer.way, consumer.way] += 1
    assert len(seen) == 16
    assert min(seen.values()) >= 5


def test_gradients_come_back_once_but_for_the_parts_of_a_sum(any_sharding):
    rng = np.random.default_rng(6)
    sums = 0
    for _ in range(300):
        nodes, batch, size = rng.integers(1, 9), int(rng.integers(1, 12)), int(rng.integers(1, 9))
        producer, consumer = any_sharding(rng, nodes), any_sharding(rng, nodes)
        resharding = make_backward_resharding(producer, consumer, batch, size)
        parts = consumer.shards if consumer.way == "place" else 1
        wanted = sizes(held(producer, batch, size, sliced=producer.way == "place"))
        assert received(resharding) == {server: parts * count for server, count in wanted.items()}
        sums += parts > 1
    assert sums >= 30


@pytest.mark.parametrize(("nodes", "batch"), [(1, 7), (4, 64), (12, 100), (128, 16384)])
def test_a_placed_table_sends_all_but_its_own_samples(nodes, batch):
    for server in {0, nodes // 2, nodes - 1}:
        resharding = make_forward_resharding(
            make_placed_sharding([server]), make_data_sharding(range(nodes)), batch, 512
        )
        away = resharding.size_bytes[resharding.source != resharding.target].sum()
        own = np.diff(split_evenly(batch, nodes))[server]
        assert away == (batch - own) * 512
        if batch % nodes == 0:
            assert away == batch * (1 - 1 / nodes) * 512
        back = make_backward_resharding(
            make_placed_sharding([server]), make_data_sharding(range(nodes)), batch, 512
        )
        assert sorted(zip(*reverse_resharding(back), strict=True)) == sorted(zip(*resharding, strict=True))


@pytest.mark.parametrize("way", ["data", "tensor", "expert"])
def test_nothing_leaves_a_server_between_equal_shardings(way):
    sharding = make_data_sharding(range(12)) if way == "data" else make_spaced_sharding(way, 12, 4)
    resharding = make_forward_resharding(sharding, sharding, 100, 64)
    assert (resharding.source == resharding.target).all()


@pytest.mark.parametrize("shards", [2, 3, 4, 6])
def test_groups_of_experts_keep_the_samples_of_their_servers(shards):
    resharding = make_forward_resharding(
        make_data_sharding(range(12)), make_spaced_sharding("expert", 12, shards), 100, 64
    )
    assert (resharding.source == resharding.target).all()


def test_copies_of_a_tensor_parallel_output_take_turns():
    copies = Sharding("tensor", ((0, 1, 2, 3),))
    resharding = make_forward_resharding(copies, Sharding("tensor", ((4, 5, 6, 7),)), 8, 10)
    assert Counter(resharding.source.tolist()) == Counter([0, 1, 2, 3])
    assert resharding.size_bytes.tolist() == [80] * 4


def test_a_server_takes_its_own_copy_first():
    resharding = make_forward_resharding(
        Sharding("tensor", ((0, 1, 2, 3),)), Sharding("tensor", ((3, 2, 1, 0, 4),)), 8, 10
    )
    assert dict(zip(resharding.target.tolist(), resharding.source.tolist(), strict=True)) == {
        0: 0,
        1: 1,
        2: 2,
        3: 3,
        4: 0,
    }


def test_gathering_costs_each_shard_what_it_lacks():
    split, whole = make_data_sharding(range(8)), Sharding("tensor", ((0, 1, 2, 3), (4, 5, 6, 7)))
    resharding = make_forward_resharding(split, whole, 64, 10)
    away = resharding.size_bytes[resharding.source != resharding.target]
    assert away.sum() == 8 * (32 - 8) * 10  # a replica has 32 samples, of which each shard computed 8


def test_outputs_without_bytes_are_still_waited_for():
    resharding = make_forward_resharding(make_data_sharding([0, 1]), make_data_sharding([2, 3]), 4, 0)
    assert list(zip(*(column.tolist() for column in resharding), strict=True)) == [(0, 2, 0), (1, 3, 0)]


@pytest.mark.parametrize(("shards", "other"), [(4, 4), (4, 2), (2, 4), (3, 4)])
def test_caches_pass_on_each_head_once(shards, other):
    prefill = Sharding("tensor", (tuple(range(shards)),))
    decode = Sharding("tensor", (tuple(range(10, 10 + other)),))
    resharding = make_forward_resharding(prefill, decode, 6, 120, True)
    assert resharding.size_bytes.sum() == 6 * 120
    assert (resharding.size_bytes > 0).all()


@pytest.mark.parametrize("shards", [1, 2, 4, 12])
def test_experts_get_an_equal_share_of_every_servers_samples(shards):
    sharding = make_spaced_sharding("expert", 12, shards)
    resharding = make_dispatch_resharding(sharding, 240, 2 * 48)
    away = resharding.size_bytes[resharding.source != resharding.target].sum()
    assert resharding.size_bytes.sum() == 240 * 2 * 48
    assert away == 240 * 2 * 48 * (shards - 1) / shards


def test_shares_of_experts_are_whole_and_complete():
    rng = np.random.default_rng(7)
    uneven = 0
    for _ in range(100):
        replicas, shards = int(rng.integers(1, 4)), int(rng.integers(1, 6))
        servers = rng.permutation(replicas * shards)
        grid = tuple(tuple(row) for row in servers.reshape(replicas, shards).tolist())
        batch, size = int(rng.integers(1, 50)), int(rng.integers(1, 50))
        resharding = make_dispatch_resharding(Sharding("expert", grid), batch, size)
        assert resharding.size_bytes.sum() == batch * size
        sent = np.bincount(resharding.source, weights=resharding.size_bytes)
        assert sent.tolist() == (np.diff(split_evenly(batch, replicas * shards)) * size).tolist()
        uneven += len(set(resharding.size_bytes.tolist())) > 1
    assert uneven >= 50

"""Fragments become messages in any order; what never becomes whole is given up."""

from hypothesis import given
from hypothesis import strategies as st

from lightning.serving.packets.reassembly import (
    FRAGMENT_OVERHEAD_BYTES,
    CompleteMessage,
    FragmentReassembler,
    ReplayCache,
)


@given(st.permutations(range(5)))
def test_order_does_not_matter(order):
    reassembly = FragmentReassembler()
    parts = [bytes([number]) * 3 for number in range(5)]
    found = [
        reassembly.add_fragment("a", number, 5, parts[number], 100 + place)
        for place, number in enumerate(order)
    ]
    assert found == [True] * 4 + [CompleteMessage(b"".join(parts), 100, 4)]
    assert (reassembly.waiting_count, reassembly.dropped_count, reassembly.memory_bytes) == (0, 0, 0)


def test_messages_do_not_mix():
    reassembly = FragmentReassembler()
    assert reassembly.add_fragment("a", 0, 2, b"a0", 0) is True
    assert reassembly.add_fragment("b", 1, 2, b"b1", 1) is True
    assert reassembly.add_fragment("b", 0, 2, b"b0", 2) == CompleteMessage(b"b0b1", 1, 1)
    assert reassembly.add_fragment("a", 1, 2, b"a1", 3) == CompleteMessage(b"a0a1", 0, 1)


def test_the_same_fragment_twice_is_not_kept():
    reassembly = FragmentReassembler()
    reassembly.add_fragment("a", 0, 3, b"a0", 0)
    assert reassembly.add_fragment("a", 0, 3, b"zz", 1) is False
    assert reassembly.add_fragment("a", 1, 2, b"a1", 1) is False  # of another number of fragments
    assert reassembly.waiting_count == 1


def test_old_ones_are_given_up():
    reassembly = FragmentReassembler(time_limit_ns=100)
    reassembly.add_fragment("a", 0, 3, b"a0", 0)
    reassembly.add_fragment("a", 1, 3, b"a1", 90)
    reassembly.add_fragment("b", 0, 2, b"b0", 60)
    reassembly.expire(100)
    assert (reassembly.waiting_count, reassembly.dropped_count) == (3, 0)
    reassembly.expire(101)
    assert (reassembly.waiting_count, reassembly.dropped_count) == (1, 2)
    assert reassembly.memory_bytes == len(b"b0") + FRAGMENT_OVERHEAD_BYTES
    assert reassembly.add_fragment("a", 2, 3, b"a2", 102) is True  # it begins again


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 7), st.integers(0, 1440)), max_size=60))
def test_memory_is_bounded_and_every_fragment_has_one_place(fragments):
    reassembly = FragmentReassembler(memory_limit_bytes=10_000)
    joined = refused = whole = 0
    for key, number, size in fragments:
        found = reassembly.add_fragment(key, number, 8, bytes(size), 0)
        refused += found is False
        if isinstance(found, CompleteMessage):
            joined, whole = joined + found.fragments_before_last, whole + 1
        assert reassembly.memory_bytes <= 10_000
        assert reassembly.memory_bytes >= FRAGMENT_OVERHEAD_BYTES * reassembly.waiting_count
    assert len(fragments) == joined + whole + refused + reassembly.waiting_count + reassembly.dropped_count


def test_the_oldest_make_room():
    reassembly = FragmentReassembler(memory_limit_bytes=3 * (100 + FRAGMENT_OVERHEAD_BYTES))
    for key in "abcd":
        reassembly.add_fragment(key, 0, 2, bytes(100), 0)
    assert (reassembly.waiting_count, reassembly.dropped_count) == (3, 1)
    assert isinstance(reassembly.add_fragment("b", 1, 2, b"", 0), CompleteMessage)
    assert reassembly.add_fragment("a", 1, 2, b"", 0) is True


def test_lately_seen_requests_are_known_again():
    replay_cache = ReplayCache()
    assert not any(replay_cache.record_request(5, request) for request in range(2000))
    again = sum(replay_cache.record_request(5, request) for request in range(2000))
    assert again > 1900  # the others' places were taken by later ones
    assert not replay_cache.record_request(6, 1999)


def test_the_table_of_seen_requests_takes_the_largest_numbers():
    replay_cache = ReplayCache()
    peer, request = 2**48 - 1, 2**64 - 1
    assert not replay_cache.record_request(peer, request)
    assert replay_cache.record_request(peer, request)

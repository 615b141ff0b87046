"""Random numbers named by seed, image and layer: normal, independent, and always the same."""

import numpy as np
import pytest
from libraries import library, skip_without

skip_without("numba")
stats = library("scipy.stats")

kernels = library("lightning.execution.kernels.normal")  # in machine code


def normals(count, seed=1, key=2, stream=3):
    found = np.empty(count)
    kernels.write_normals(seed, key, stream, found)
    return found


@pytest.fixture(scope="module")
def many():
    return normals(1_000_000)


@pytest.mark.slow
def test_they_are_normal(many):
    assert stats.kstest(many, "norm").pvalue > 0.01
    for power, moment in ((1, 0), (2, 1), (3, 0), (4, 3), (6, 15)):
        deviation = np.sqrt(stats.norm.moment(2 * power) / len(many))
        assert abs((many**power).mean() - moment) < 4 * deviation


def test_the_tail_is_there_and_falls_as_it_should(many):
    beyond = np.abs(many[np.abs(many) > kernels.STRIP_EDGE])
    expected = 2 * stats.norm.sf(kernels.STRIP_EDGE) * len(many)
    assert abs(len(beyond) - expected) < 4 * expected**0.5
    assert (
        stats.kstest(beyond, lambda x: 1 - stats.norm.sf(x) / stats.norm.sf(kernels.STRIP_EDGE)).pvalue > 0.01
    )
    assert (many < -kernels.STRIP_EDGE).any()
    assert (many > kernels.STRIP_EDGE).any()


def test_one_follows_another_without_a_trace(many):
    limit = 4 / len(many) ** 0.5
    for lag in (1, 2, 3, 8):
        assert abs(np.mean(many[:-lag] * many[lag:])) < limit
        assert abs(np.mean(many[:-lag] ** 2 * many[lag:] ** 2) - 1) < 4 * limit


@pytest.mark.parametrize("named", ["seed", "key", "stream"])
def test_neighbours_have_nothing_in_common(named):
    many = np.array([normals(64, **{named: number}) for number in range(2000)])
    limit = 4 / many[1:].size ** 0.5
    assert abs(np.mean(many[1:] * many[:-1])) < limit
    assert abs(np.mean(many[1:, 1:] * many[:-1, :-1])) < limit
    assert stats.kstest(many[:, 0], "norm").pvalue > 0.01  # the first of each stream, too
    assert len(np.unique(many)) > 0.999 * many.size


def mixed(word):
    """Return SplitMix64's output function, in Python's whole numbers."""
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
    return word ^ word >> 31


def words(seed, key, stream):
    """Yield the words of xoshiro256++, in Python's whole numbers."""
    golden, name = 0x9E3779B97F4A7C15, 0
    for part in (seed, key, stream):
        name = mixed(((name ^ part) + golden) % 2**64)
    s = [mixed((name + place * golden) % 2**64) for place in range(1, 5)]
    while True:
        total = (s[0] + s[3]) % 2**64
        yield ((total << 23 | total >> 41) + s[0]) % 2**64
        carried = s[1] << 17 % 2**64
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] = (s[2] ^ carried) % 2**64
        s[3] = (s[3] << 45 | s[3] >> 19) % 2**64


def test_a_name_is_a_stream_for_ever():
    named = (2**64 - 1, 2**63 + 5, 7)
    expected = []
    for word in words(*named):
        place = ((word >> 11) - 2**52) / 2**52 * kernels.STRIP_ENDS[word % 256]
        if abs(place) >= kernels.STRIP_ENDS[word % 256 + 1]:  # at the rim: more words are drawn
            break
        expected.append(place)
    assert len(expected) > 5
    assert normals(len(expected), *named).tolist() == expected

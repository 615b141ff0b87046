"""Hosts that a test gets of a lab: what it needs, what is broken, what others hold, what circuits join."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from testbed.operate.borrow import HostCandidates, group_hosts
from testbed.pytest_plugin import MARKERS
from testbed.pytest_plugin.needs import LabNeeds

HOSTS = "abcdefgh"


def item(*marks):
    found = {mark.name: mark for mark in marks}
    return SimpleNamespace(get_closest_marker=found.get)


def lab(*, groups=HOSTS, nics=2, faults=(), gpus=0):
    """Return candidates; groups as words: `ab c d`."""
    words = groups.split() if " " in groups else list(groups)
    hosts = [host for word in words for host in word]
    return HostCandidates(
        tuple(map(tuple, words)),
        dict.fromkeys(hosts, nics),
        dict.fromkeys(faults, "no_light"),
        dict.fromkeys(hosts, gpus),
    )


def test_needs_are_read_from_markers():
    marks = [
        pytest.mark.testbed_hosts(6).mark,
        pytest.mark.testbed_degree(count=3).mark,
        pytest.mark.testbed_gpu.mark,
        pytest.mark.testbed_board.mark,
    ]
    assert LabNeeds.from_item(item(*marks)) == LabNeeds(
        host_count=6, degree=3, gpu_count_per_host=1, needs_board=True
    )
    assert LabNeeds.from_item(item()) == LabNeeds()
    assert {mark.name for mark in marks} == {marker.partition("(")[0] for marker in MARKERS}


@pytest.mark.parametrize(
    "mark",
    [
        pytest.mark.testbed_hosts,
        pytest.mark.testbed_hosts(1),
        pytest.mark.testbed_hosts("4"),
        pytest.mark.testbed_degree(0),
        pytest.mark.testbed_gpu(True),
        pytest.mark.testbed_hosts(2, 3),
    ],
)
def test_a_marker_that_is_not_a_count_is_refused_with_the_form(mark):
    with pytest.raises(ValueError, match=r"write testbed_\w+\(4\)"):
        LabNeeds.from_item(item(mark.mark))


def test_two_tests_get_hosts_that_differ():
    dark, needs = lab(), LabNeeds(host_count=4)
    first = dark.choose_hosts(needs, ())
    second = dark.choose_hosts(needs, first)

    assert (first, second) == (tuple("abcd"), tuple("efgh"))
    assert dark.choose_hosts(needs, first + second) == ()


def test_hosts_that_circuits_join_are_taken_together():
    joined_by_circuits = lab(groups="abcdef g h")

    assert joined_by_circuits.choose_hosts(LabNeeds(host_count=2), ()) == ("g", "h")
    assert joined_by_circuits.choose_hosts(LabNeeds(host_count=3), ()) == ("g", "h", *"abcdef")
    assert joined_by_circuits.is_whole_group(("g", "h"))
    assert not joined_by_circuits.is_whole_group(("a", "g"))


def test_a_lab_that_is_too_small_is_told_from_one_that_is_broken():
    assert "0 of 8 hosts fit" in lab().explain_unmet_needs(LabNeeds(host_count=2, degree=3))
    assert "0 of 8 hosts fit" in lab().explain_unmet_needs(LabNeeds(host_count=2, gpu_count_per_host=1))
    assert lab(gpus=2).explain_unmet_needs(LabNeeds(host_count=8, gpu_count_per_host=2)) == ""
    assert lab(faults="ab").explain_unmet_needs(LabNeeds(host_count=6)) == ""
    assert "marked broken (a: no_light, b: no_light)" in lab(faults="ab").explain_unmet_needs(
        LabNeeds(host_count=7)
    )
    # All of the lab is wanted where the test does not say.
    assert "marked broken" in lab(faults="a").explain_unmet_needs(LabNeeds())


drawn_groups = st.lists(st.tuples(st.sampled_from(HOSTS), st.sampled_from(HOSTS)), max_size=6)


@given(
    drawn_groups,
    st.sets(st.sampled_from(HOSTS), max_size=3),
    st.sets(st.sampled_from(HOSTS), max_size=3),
    st.integers(2, 8),
)
def test_what_is_chosen_is_free_healthy_and_whole(pairs, faults, held, wanted):
    groups = group_hosts(HOSTS, pairs)
    candidates = HostCandidates(
        groups, dict.fromkeys(HOSTS, 2), dict.fromkeys(faults, "host_off"), dict.fromkeys(HOSTS, 0)
    )
    chosen = candidates.choose_hosts(LabNeeds(host_count=wanted), held)

    assert sorted(host for group in groups for host in group) == sorted(HOSTS)
    if chosen:
        event("chosen")
        assert len(chosen) >= wanted
        assert not set(chosen) & (faults | held)
        assert candidates.is_whole_group(chosen)
        assert candidates.explain_unmet_needs(LabNeeds(host_count=wanted)) == ""
    elif not held:
        event("impossible")
        assert candidates.explain_unmet_needs(LabNeeds(host_count=wanted)) != ""


@pytest.mark.process
def test_loading_the_plugin_imports_nothing_of_the_testbed():
    program = (
        "import sys, testbed.pytest_plugin; ours = ('testbed', 'ocs_drivers', 'sim', 'lightbed', 'numpy', 'yaml');"
        "print(sorted(name for name in sys.modules if name.partition('.')[0] in ours))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "['testbed', 'testbed.pytest_plugin']"

"""The first command on a fresh machine says that it compiles, and those after it do not."""

from __future__ import annotations

import pytest
from libraries import skip_without

skip_without("typer")
skip_without("matplotlib")

NOTE = "compiling the simulator for this machine, once: about half a minute\n"
SMALL = ("vgg16", "--nodes", 1, "--set", "batch_per_device=2")


@pytest.fixture
def kept(monkeypatch):
    """Return the functions that were looked for; those whose name is in `fresh` have no translation yet."""
    looked = []
    fresh = {"run", "run_packets", "compute_finish_s"}

    def is_cached_on_disk(function):
        looked.append(f"{function.__module__.rsplit('.', 1)[-1]}.{function.__name__}")
        return function.__name__ not in fresh

    from testbed.design.evaluation import compilation  # imports numba

    monkeypatch.setattr(compilation, "IS_AVAILABLE", True)
    monkeypatch.setattr(compilation, "is_cached_on_disk", is_cached_on_disk)
    looked.append(fresh)
    return looked


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "needs"),
    [
        (("simulate", *SMALL), ["loop.run"]),
        (("simulate", *SMALL, "--routing", "hash"), ["packets.run_packets"]),
        (("compare", *SMALL, "--fabrics", "ideal"), ["loop.run"]),
        (("reproduce", "topoopt", "--figure", 10, "--quick"), ["loop.run"]),
    ],
)
def test_a_command_says_so_before_it_compiles(testbed, kept, command, needs):
    ran = testbed(*command)
    assert ran.code == 0, ran.err
    assert ran.err.startswith(NOTE)
    assert kept[1:] == needs


def test_what_is_compiled_is_not_told_again(testbed, kept):
    kept[0].clear()
    ran = testbed("simulate", *SMALL)
    assert (ran.code, ran.err) == (0, "")


def test_a_search_looks_at_all_that_it_needs(testbed, kept):
    kept[0].clear()
    ran = testbed("optimise", *SMALL, "--steps", 0, "--chains", 1)
    assert ran.code == 0, ran.err
    assert kept[1:] == ["loop.run", "recurrence.compute_finish_s", "balancing.replace_trees"]
    assert "batch of 8 samples" in ran.out


def test_without_machine_code_there_is_nothing_to_compile(kept, monkeypatch):
    from testbed.design.evaluation import compilation

    monkeypatch.setattr(compilation, "IS_AVAILABLE", False)
    assert compilation.is_compiled("flows", "packets")
    assert kept[1:] == []

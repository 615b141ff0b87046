"""Every write of an operation as the moment of death: what was begun is finished, and nothing is done twice.

Twins are processes of their own, so that a kill hits the client alone, and the truth is read from them.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from crash_harness import MEMORY, Scene
from libraries import skip_without
from needs import needs

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")
skip_without("pyvisa_py")

from testbed.lab.inventory import load_lab
from testbed.lab.simulated.lifecycle import start_lab

LABS = Path(__file__).resolve().parents[2] / "labs"
DUPLEX = {"do": "apply", "simplex": False}
SIMPLEX = {"do": "apply", "simplex": True}

SCENES = {
    "apply on one switch": ("one", [DUPLEX], SIMPLEX),
    "apply on four switches": ("planes", [DUPLEX], SIMPLEX),
    "apply circuit by circuit": ("many steps", [DUPLEX], SIMPLEX),
    "rollback on one switch": ("one", [DUPLEX, SIMPLEX], {"do": "rollback"}),
    "rollback on four switches": ("planes", [DUPLEX, SIMPLEX], {"do": "rollback"}),
    "resume on one switch": ("one", [DUPLEX, {**SIMPLEX, "kill": "#60"}], {"do": "resume"}),
    "resume on four switches": ("planes", [DUPLEX, {**SIMPLEX, "kill": "#120"}], {"do": "resume"}),
    "resume circuit by circuit": ("many steps", [DUPLEX, {**SIMPLEX, "kill": "#120"}], {"do": "resume"}),
    "lease hand-over on one switch": ("one", [DUPLEX, {"do": "queue"}], {**SIMPLEX, "do": "hand_over"}),
    "lease hand-over on four switches": ("planes", [DUPLEX, {"do": "queue"}], {**SIMPLEX, "do": "hand_over"}),
}
"""Name of a scene: its lab, what is done before, and the operation that is killed."""

OF_EACH_KIND = (
    "apply on four switches",
    "rollback on one switch",
    "resume on one switch",
    "lease hand-over on one switch",
)
THIRDS = 3
"""Circuit by circuit, an operation writes the same for each circuit: a third of its points has every kind."""
POINTS_IN_SHORT = 4
"""Scenes of `make test`, and points of each, evenly spread over the operation; `make test-long` takes all."""


def one_circuit_a_command(lab):
    """Return the lab with five hosts of two NICs, behind a switch whose commands name one pair each."""
    switch = replace(lab.switches[0], address="calient+tl1://10.99.0.2:2222")
    hosts = tuple(replace(host, nics=host.nics[:2]) for host in lab.hosts[:5])
    return replace(lab, name="many-steps", hosts=hosts, switches=(switch,))


def with_speed(lab, switch_time_s):
    twins = {name: replace(twin, switch_time_s=switch_time_s) for name, twin in lab.twins.items()}
    return replace(lab, twins=twins)


@pytest.fixture(scope="module")
@needs("process", "socket")
def labs():
    """Provide a function that gives the lab of a name, started once."""
    one = load_lab(LABS / "testbed12.yaml")
    known = {
        "one": one,
        "planes": load_lab(LABS / "testbed12-planes.yaml"),
        "many steps": one_circuit_a_command(one),
    }
    started = {}

    def lab(name):
        if name not in started:
            started[name] = start_lab(with_speed(known[name], 0.002), hosts="model", may_move=True)
        return started[name]

    yield lab
    for up in started.values():
        up.close()


@pytest.fixture(scope="module")
def scene(labs, server):
    """Provide a function that gives the scene of a name, recorded once.

    Runs are kept in memory where that is possible: a kill takes the process and leaves the page cache.
    """
    known = {}
    scratch = ExitStack()

    def scene(name):
        if name not in known:
            lab, before, operation = SCENES[name]
            directory = scratch.enter_context(
                TemporaryDirectory(prefix=f"lightbed-{os.getpid()}-", dir=MEMORY)
            )
            known[name] = Scene.of(labs(lab), server, Path(directory), before, **operation)
            if operation["do"] == "hand_over":
                known[name].resume = {"do": "hand_over", "resume": True}
        return known[name]

    with scratch:
        yield scene


def spread(labels, count):
    """Return so many labels at equal distances, the first and the last among them."""
    last = len(labels) - 1
    return [labels[at * last // (count - 1)] for at in range(count)]


def not_survived(scene, labels):
    """Kill at each of these points; return those that were not reached in ten attempts.

    Threads of several switches take turns as the machine lets them, so that a point may be missing from a run.
    """
    return [label for label in labels if not any(scene.survive(label) for _ in range(10))]


@pytest.mark.long
@pytest.mark.parametrize("name", OF_EACH_KIND)
def test_an_operation_that_is_killed_at_a_point_of_it_is_finished(scene, capsys, name):
    here = scene(name)
    begin = time.monotonic()
    missing = not_survived(here, spread(here.labels, POINTS_IN_SHORT))
    each_s = (time.monotonic() - begin) / POINTS_IN_SHORT
    with capsys.disabled():
        survived = POINTS_IN_SHORT - len(missing)
        print(f"\n{name}: survived {survived} of {POINTS_IN_SHORT} kill points, {each_s:.2f} s each")
    assert missing == []


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SCENES)
def test_every_point_of_an_operation_is_survived(scene, capsys, name):
    here = scene(name)
    labels = here.labels[:: THIRDS if "circuit by circuit" in name else 1]
    missing, total = not_survived(here, labels), len(labels)
    with capsys.disabled():
        survived = total - len(missing)
        print(f"\n{name}: survived {survived} of {total} kill points: {dict(here.ends)}")
    assert missing == []


@pytest.mark.long
def test_the_operations_have_four_hundred_points_that_differ(scene, capsys):
    """Labels of one scene differ; those of several may say the same."""
    labels = [label for name in SCENES for label in scene(name).labels]
    with capsys.disabled():
        print(f"\n{len(labels)} kill points of {len(SCENES)} operations, {len(set(labels))} labels differ")
    assert len(set(labels)) >= 400


def test_labels_say_thread_device_kind_ordinal_and_part(scene):
    one = scene("apply on one switch").labels
    assert {label.rsplit(" ", 4)[2] for label in one} >= {"send", "pwrite", "fsync", "unlink"}
    assert {label.rsplit(" ", 1)[1] for label in one} == {"before", "half"}
    four = scene("apply on four switches").labels
    assert {label.split()[0] for label in four} == {"main", "worker"}
    assert len({label.split()[1] for label in four if label.split()[2] == "send"}) == 4

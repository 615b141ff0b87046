"""A lab that stands, for tests of the plugin, and items of pytest that ask for parts of it."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from libraries import skip_without
from needs import needs

LAB_OPTIONS = {
    "lab": None,
    "lab_server": None,
    "lab_name": None,
    "lab_hosts": "model",
    "lab_runs_dir": None,
    "lab_wait": 60.0,
    "lab_really_move": None,
    "lab_board": None,
}


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory):
    """Provide keys made in tests stay out of the home of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
@needs("process", "socket")
def standing(tmp_path_factory):
    """Provide a modelled lab of six hosts with two NICs, which is up, and its lab file."""
    skip_without("asyncssh")
    skip_without("sqlalchemy")
    from testbed.lab.inventory import parse_lab, render_lab
    from testbed.lab.simulated.lifecycle import start_lab
    from testbed.pytest_plugin.small_lab import render_lab_text

    folder = tmp_path_factory.mktemp("standing")
    text = render_lab_text(6, 2).replace("name: of-a-test", "name: shared-by-tests")
    with start_lab(parse_lab(text, folder / "lab.yaml"), hosts="model", may_move=True) as started:
        (folder / "lab.yaml").write_text(render_lab(started.lab))
        yield SimpleNamespace(lab=started.lab, file=folder / "lab.yaml", control=started.control_addresses)


@pytest.fixture
def lab_for(standing, tmp_path):
    """Provide the lab of a test that has these marks, as the fixture does: entered by `with`."""
    from testbed.pytest_plugin import provision

    @contextmanager
    def take(*marks, test="test_x.py::test_it", **options):
        given = LAB_OPTIONS | {"lab": str(standing.file), "lab_runs_dir": str(tmp_path / "runs")} | options
        item = SimpleNamespace(
            nodeid=test,
            config=SimpleNamespace(option=SimpleNamespace(**given)),
            get_closest_marker={mark.name: mark.mark for mark in marks}.get,
        )
        scratch = tmp_path / test.rpartition(":")[2]
        scratch.mkdir(exist_ok=True)
        with provision.provide_lab(item, scratch) as lab:
            yield lab

    return take


@pytest.fixture
def store(standing, tmp_path):
    """Provide the leases of the lab that stands."""
    from testbed.leases.store import LeaseStore
    from testbed.storage.database import Database

    database = Database(tmp_path / "runs" / "lightbed.sqlite")
    yield LeaseStore(database, standing.lab.name)
    database.close()


@pytest.fixture
def circuits(standing):
    """Return what the switch holds; it is dark when a test begins."""
    from ocs_drivers import open_switch
    from ocs_drivers.model import CrossConnects

    def held(wanted=None):
        with open_switch(standing.lab.switches[0].address) as switch:
            if wanted is not None:
                switch.apply(CrossConnects(wanted))
            return dict(switch.read().connections)

    held({})
    return held

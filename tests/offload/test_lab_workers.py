"""Four simulated hosts as workers for a trainer on a fifth: all bytes on the management network."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from libraries import skip_without
from needs import needs

skip_without("asyncssh")
skip_without("jsonschema")
skip_without("pydantic")
skip_without("distributed")

from testbed.errors import OffloadError
from testbed.lab.hosts.fleet import SshFleet
from testbed.lab.inventory import load_lab
from testbed.lab.simulated.lifecycle import start_lab
from testbed.offload.lab_workers import start_lab_workers
from testbed.operate.design import build_design
from testbed.operate.journal import Journal
from testbed.operate.session import open_lab

pytestmark = pytest.mark.kernel
ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / ".venv-clients" / "bin" / "python"

TRAINER = """
import json, socket, sys
sys.path.insert(0, {root!r})
from testbed.offload.dask_engine import DaskEngine
from testbed.offload.epoch import make_order
from testbed.offload.feed import Feed, Rule, Sides
from testbed.offload.stages import Pipeline, Runner

def prepare(number):
    import socket
    return number, socket.gethostname(), bytes(100_000)

engine = DaskEngine({address!r})
engine._client.wait_for_workers(4, timeout=60)
runner = Runner(Pipeline(list(range(96)), prepare, list))
engine.open(runner)
feed = Feed(Sides(runner, None, engine), make_order(96, 4, shuffle_by="1"), Rule("p3", 0.75))
found = [element for _, batch in feed for element in batch]
print(json.dumps({{
    "numbers": sorted(number for number, _, _ in found),
    "by": {{name: sum(name == each for _, each, _ in found) for name in {{each for _, each, _ in found}}}},
    "received": sum(len(data) for _, name, data in found if name != socket.gethostname()),
}}))
engine.close()
"""


KILLED = """
import pickle, sys
from testbed.offload.lab_workers import start_lab_workers
lab, hosts, python = pickle.load(sys.stdin.buffer)
with start_lab_workers(lab, hosts, python_by_host=python) as address:
    from testbed.offload.dask_engine import DaskEngine
    DaskEngine(address)._client.wait_for_workers(len(hosts), timeout=60)
    print(address, flush=True)
    sys.stdin.buffer.read()
"""


@pytest.fixture(scope="module")
@needs("process", "socket")
def bench(tmp_path_factory):
    """Provide five hosts of two NICs each, joined to a ring and routed."""
    lab = load_lab(ROOT / "labs" / "testbed12.yaml")
    hosts = tuple(replace(host, nics=host.nics[:2]) for host in lab.hosts[:5])
    five = replace(lab, name=f"offload-{os.getpid()}", hosts=hosts)
    path = tmp_path_factory.mktemp("offload")
    with start_lab(five, hosts="kernel", may_move=True) as up, Journal(path / "journal.sqlite") as journal:
        with open_lab(up.lab, journal, model_hosts=False) as session:
            session.bring_up(build_design(up.lab))
        with SshFleet(up.lab) as fleet:
            yield SimpleNamespace(lab=up.lab, fleet=fleet)


def sent(bench, pattern):
    """Return bytes that all hosts have sent on interfaces of this pattern."""
    count = f"cat /sys/class/net/{pattern}/statistics/tx_bytes"
    done = bench.fleet.run({host.name: count for host in bench.lab.hosts}, timeout_s=30)
    return sum(int(word) for each in done.values() for word in each.stdout.split())


@pytest.mark.long
@pytest.mark.skipif(not CLIENTS.exists(), reason="`make install-test` makes .venv-clients, with dask in it")
def test_no_byte_of_the_preprocessing_takes_an_optical_link(bench):
    """Workers have Dask and nothing of ours; ARP and the like on idle links stay far below one element."""
    *workers, trainer = bench.lab.hosts
    interpreters = {host.name: str(CLIENTS) for host in workers}
    python = ROOT / ".venv" / "bin" / "python"
    with start_lab_workers(bench.lab, tuple(workers), python_by_host=interpreters) as address:
        assert address == f"tcp://{workers[0].management}:8786"
        script = TRAINER.format(root=str(ROOT), address=address)
        before = sent(bench, "nic*")
        done = bench.fleet.run(
            {trainer.name: f"cd /tmp && {python} -"}, stdin={trainer.name: script}, timeout_s=90
        )[trainer.name]
        after = sent(bench, "nic*")
    assert done.exit_status == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["numbers"] == list(range(96))
    assert sum(count for name, count in found["by"].items() if name != trainer.name) == 72
    assert len(found["by"]) >= 4
    assert found["received"] == 72 * 100_000
    assert after - before < 10_000


def test_hosts_without_dask_are_named(bench):
    """The interpreter of simulated hosts has torch and numpy."""
    with (
        pytest.raises(OffloadError, match=r"on a cannot import `distributed`: install it there"),
        start_lab_workers(bench.lab, bench.lab.hosts[:1]),
    ):
        pass


@pytest.mark.long
@pytest.mark.skipif(not CLIENTS.exists(), reason="`make install-test` makes .venv-clients, with dask in it")
def test_workers_end_with_a_trainer_that_is_killed(bench):
    """Its connections are closed by the system, and with them the sessions that the workers live in."""
    hosts = bench.lab.hosts[:2]
    left = {host.name: "pgrep -fc '[d]istributed.cli' || true" for host in hosts}
    gone = (
        "for i in $(seq 300); do pgrep -f '[d]istributed.cli' >/dev/null || exit 0; sleep 0.1; done; exit 1"
    )
    asked = subprocess.Popen(
        [sys.executable, "-c", KILLED], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with asked as trainer:
        pickle.dump((bench.lab, hosts, {host.name: str(CLIENTS) for host in hosts}), trainer.stdin)
        trainer.stdin.flush()
        assert trainer.stdout.readline().startswith(b"tcp://")
        before = bench.fleet.run(left, timeout_s=30)
        trainer.kill()
    assert [int(before[host.name].stdout) for host in hosts] == [2, 1]
    after = bench.fleet.run({host.name: gone for host in hosts}, timeout_s=60)
    assert [after[host.name].exit_status for host in hosts] == [0, 0]

"""The lab as a Python object: the same script through a lab file and through a service, with the same output."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import threading
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("fastapi")
skip_without("httpx")
skip_without("sqlalchemy")

from service_process import Process

from ocs_drivers.errors import OcsError
from testbed import open_lab, open_lab_async
from testbed.commands.documents import Document
from testbed.errors import IntentError, LeaseDenied, TopologyError, UsageError
from testbed.lab.inventory import load_lab, render_lab
from testbed.lab.simulated.lifecycle import start_lab
from testbed.operate.session import LabSession
from testbed.scripting.backends import RunFailed, make_error

ROOT = Path(__file__).resolve().parents[2]
TESTBED12 = ROOT / "labs" / "testbed12.yaml"


SERVICE_IS_LONG = pytest.mark.parametrize(
    "lab", ["file", pytest.param("service", marks=pytest.mark.long)], indirect=True
)
"""Every command through a service is a process: `test_commands` sends some of these through one every day."""


@pytest.fixture(params=["file", "service"])
def lab(request, up, running, tmp_path):
    """Provide the lab that is up, through its file and through the service, with modelled hosts."""
    if request.param == "file":
        with open_lab(up[1], hosts="model", runs_dir=tmp_path / "runs") as opened:
            yield opened
        return
    with open_lab(
        f"{running.url}/{up[0].lab.name}", hosts="model", token=running.token("operator")
    ) as opened:
        yield opened


@SERVICE_IS_LONG
def test_commands_return_the_documents_of_the_command_line(lab):
    applied = lab.apply(simplex=True)
    assert (type(applied).__name__, applied.verified, applied.findings) == ("ApplyDocument", True, ())
    planned = lab.plan(simplex=True)
    assert planned.exit_code == 0
    assert planned.switches[0].switch == "ocs1"
    way = lab.path("a", "c")
    assert (way.source, way.hops[-1].receiver) == ("a", "c/nic1")
    proof = lab.verify()
    assert proof.ok
    assert all(isinstance(pair, tuple) for pairs in proof.held.values() for pair in pairs)
    first, *_ = lab.epochs()
    assert (first.verified, first.kind) == (True, "apply")
    assert lab.light().ok
    measured = lab.nccl(sizes="1MiB:1MiB")
    assert {row.size_bytes for row in measured.results} == {1 << 20}
    for document in (applied, planned, way, proof, measured):
        assert isinstance(document, Document)
        assert type(document).__name__ in repr(document)


def test_a_lease_holds_for_its_block_and_others_wait(lab):
    with lab.lease(reason="mine") as lease:
        assert lease.resources == ("lab",)
        assert lab.apply().verified
        held = lab.command("lease list").leases
        assert [(one.id, one.reason) for one in held if one.state == "granted"] == [(lease.id, "mine")]
        with pytest.raises(LeaseDenied, match="was not granted within 0 s"):
            lab.lease(reason="another")
    assert [one for one in lab.command("lease list").leases if one.state in ("granted", "queued")] == []


def test_errors_are_those_of_the_command(lab):
    with pytest.raises(TopologyError, match="no host 'nobody'"):
        lab.path("a", "nobody")
    with pytest.raises(UsageError, match="apply has no option 'speed': its options are simplex, method"):
        lab.apply(speed=3)
    with pytest.raises(UsageError, match="method='random' is none of 'geometric', 'exhaustive'"):
        lab.apply(method="random")
    with pytest.raises(UsageError, match="epoch=0 is out of range: 1 or more"):
        lab.apply(epoch=0)
    with pytest.raises(UsageError, match="simplex='no' is not of type bool"):
        lab.apply(simplex="no")
    with pytest.raises(UsageError, match="path needs 'target'"):
        lab.command("path", "a")
    with pytest.raises(UsageError, match="'source' is given by position and by name"):
        lab.command("path", "a", "b", source="c")
    with pytest.raises(UsageError, match="has no command 'fly'"):
        lab.command("fly")
    with pytest.raises(IntentError, match="epoch 1 already sets the topology"):
        lab.apply(method="geometric", epoch=1)


def test_progress_goes_to_the_function(up, running, tmp_path):
    sources = (
        (str(up[1]), {"runs_dir": tmp_path / "runs"}),
        (f"{running.url}/{up[0].lab.name}", {"token": running.token("operator")}),
    )
    for source, options in sources:
        calls = []
        with open_lab(source, hosts="model", progress=lambda *call: calls.append(call), **options) as opened:  # noqa: B023
            opened.apply(simplex=True)
            opened.apply(method="geometric")
            if source == str(up[1]):
                opened.nccl(sizes="1KiB:1KiB")
                assert any(done == total > 0 for done, total, _ in calls)
        assert calls


@SERVICE_IS_LONG
def test_events_come_each_once_from_the_call_on(lab):
    lab.apply(simplex=True)
    events = lab.events()
    assert lab.apply(method="geometric").changed
    seen = [next(events) for _ in range(4)]
    numbers = [event.number for event in seen]
    assert numbers == sorted(set(numbers))
    assert "INTEND" in {event.event for event in seen}


@pytest.fixture(params=["file", pytest.param("service", marks=pytest.mark.long)])
def open_async(request, up, running, tmp_path):
    """Return a function that opens the lab that is up for coroutines, through its file or through the service."""
    if request.param == "file":
        return lambda: open_lab_async(up[1], hosts="model", runs_dir=tmp_path / "runs")
    token = running.token("operator")
    return lambda: open_lab_async(f"{running.url}/{up[0].lab.name}", hosts="model", token=token)


def test_coroutines_run_at_once_and_streams_can_be_left(open_async):
    async def main():
        async with await open_async() as lab:
            await lab.apply(simplex=True)
            events = lab.events()
            first = asyncio.create_task(anext(events))
            await asyncio.sleep(0.5)
            applied, hosts = await asyncio.gather(lab.apply(method="geometric"), lab.list_hosts())
            assert applied.verified
            assert len(hosts) == 12
            assert (await asyncio.wait_for(first, 10)).number > 0
            await events.aclose()
            with pytest.raises(AttributeError):
                lab.nothing()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_cancelled_request_for_a_lease_leaves_none(open_async):
    async def main():
        async with await open_async() as lab:
            async with await lab.lease(reason="mine"):
                request = asyncio.create_task(lab.lease(reason="another", wait=2))
                await asyncio.sleep(0.3)
                request.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await request
            leases = (await lab.command("lease list")).leases
            assert [one for one in leases if one.state in ("granted", "queued")] == []

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_cancelled_change_stops_between_two_steps(up, tmp_path, monkeypatch):
    """The change is held before it sends anything, cancelled, and let go: it must not go on."""
    is_there, may_go = threading.Event(), threading.Event()
    carry_out = LabSession.carry_out

    def hold(self, *arguments, **options):
        is_there.set()
        assert may_go.wait(20)
        return carry_out(self, *arguments, **options)

    async def main():
        async with await open_lab_async(up[1], hosts="model", runs_dir=tmp_path / "runs") as lab:
            await lab.apply(method="geometric")
            monkeypatch.setattr(LabSession, "carry_out", hold)
            change = asyncio.create_task(lab.apply(simplex=True))
            assert await asyncio.to_thread(is_there.wait, 20)
            change.cancel()
            await asyncio.sleep(0.2)
            may_go.set()
            with pytest.raises(asyncio.CancelledError):
                await change
            monkeypatch.undo()
            assert not (await lab.plan(method="geometric")).has_changes
            assert not (await lab.epochs())[0].verified

    asyncio.run(asyncio.wait_for(main(), 60))


def test_two_blocks_keep_their_leases_apart(up, tmp_path):
    async def main():
        async with await open_lab_async(up[1], hosts="model", runs_dir=tmp_path / "runs") as lab:

            async def hold(host, both):
                async with await lab.lease([f"host:{host}"]) as lease:
                    await both.wait()
                    return lease.lab.lease_in_use.get() == lease.id

            both = asyncio.Barrier(2)
            assert await asyncio.gather(hold("a", both), hold("b", both)) == [True, True]

    asyncio.run(asyncio.wait_for(main(), 60))


@SERVICE_IS_LONG
def test_a_lease_is_released_once_and_a_reserved_one_opens_no_block(lab):
    with lab.lease(reason="short") as lease:
        lease.release()
    later = lab.lease(at="2030-01-01T09:00")
    with pytest.raises(LeaseDenied, match="needs one that is granted"), later:
        pass
    later.release()


def test_a_service_names_its_labs(running):
    with pytest.raises(UsageError, match=r"has no lab 'other': its labs are shared\d+"):
        open_lab(f"{running.url}/other", token=running.token("viewer"))
    with pytest.raises(UsageError, match="leave out runs_dir"):
        open_lab(f"{running.url}/any", runs_dir="runs")
    with pytest.raises(UsageError, match="hosts='modell' is none of"):
        open_lab(f"{running.url}/any", hosts="modell")


def test_an_error_of_a_service_is_an_instance_of_its_class():
    error = make_error({"code": "ocs.held", "who": "conflict", "message": "in use"})
    assert isinstance(error, OcsError)
    assert (error.code, str(error)) == ("ocs.held", "in use")
    assert RunFailed.code == "service.run"


def find_blocks(page):
    """Return the Python blocks of a page that open a lab."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    return [block for block in blocks if "open_lab" in block]


def run_block(block, source, options):
    """Run a block of a page on another lab, and return what it prints."""
    printed = io.StringIO()
    block = re.sub(r'open_lab(_async)?\("[^"]*"', rf"open_lab\1({source!r}{options}", block)
    with contextlib.redirect_stdout(printed):
        exec(block, {})
    return printed.getvalue()


def test_the_code_of_the_pages_prints_the_same_through_both(up, running, tmp_path, monkeypatch):
    monkeypatch.setenv("LIGHTBED_TOKEN", running.token("operator"))
    monkeypatch.setenv("LIGHTBED_RUNS", str(tmp_path / "runs"))
    (ten_lines,) = find_blocks("README.md")
    assert len(ten_lines.splitlines()) <= 10
    through_file = run_block(ten_lines, str(up[1]), ', hosts="model"')
    through_service = run_block(ten_lines, f"{running.url}/{up[0].lab.name}", ', hosts="model"')
    assert through_file == through_service
    assert "48 circuits, verified: True" in through_file
    assert re.search(r"four rings: \d+ Mbit/s", through_file)


def run_program(source):
    """Run a program on two hosts of a lab; return its exit code, the rank that failed, and the output of all ranks."""
    with open_lab(source) as lab:
        done = lab.run(
            "sh", "-c", "echo rank $RANK of $WORLD_SIZE; sleep $((2 - $RANK)); exit $((7 * $RANK))", nodes=2
        )
    return done.exit_code, done.failed_rank, {rank.stdout for rank in done.ranks}


@pytest.mark.kernel
@pytest.mark.long
def test_the_ten_lines_print_the_same_on_kernel_hosts(tmp_path, monkeypatch):
    (ten_lines,) = find_blocks("README.md")
    file = tmp_path / "lab.yaml"
    text = TESTBED12.read_text(encoding="utf-8").replace("name: testbed12", f"name: ten{os.getpid()}")
    file.write_text(text.replace("../.venv-host", str(ROOT / ".venv-host")), encoding="utf-8")
    with start_lab(load_lab(file), hosts="kernel", may_move=True) as lab:
        file.write_text(render_lab(lab.lab), encoding="utf-8")
        monkeypatch.setenv("LIGHTBED_RUNS", str(tmp_path / "runs"))
        through_file = run_block(ten_lines, str(file), "")
        program = run_program(str(file))
        service = Process(file, tmp_path / "runs of the service")
        service.start()
        try:
            monkeypatch.setenv("LIGHTBED_TOKEN", service.token("operator"))
            through_service = run_block(ten_lines, f"{service.url}/{lab.lab.name}", "")
            monkeypatch.setenv("LIGHTBED_TOKEN", service.token("developer"))
            assert run_program(f"{service.url}/{lab.lab.name}") == program
        finally:
            assert service.end() == 0
    assert program == (7, 1, {"rank 0 of 2\n", "rank 1 of 2\n"})
    rates = re.compile(r"\d+(?= Mbit/s)")
    assert rates.sub("N", through_file) == rates.sub("N", through_service)
    one, four = map(int, rates.findall(through_file))
    assert four > one  # by how much depends on the load of this machine


def test_the_code_of_the_how_to_runs(up, tmp_path, monkeypatch):
    monkeypatch.setenv("LIGHTBED_RUNS", str(tmp_path / "runs"))
    blocks = find_blocks("docs/how-to/script-a-lab.md")
    first, second, third = (run_block(block, str(up[1]), ', hosts="model"') for block in blocks)
    assert re.search(r"epoch 1, verified: True\n48\n", first)
    assert "1 2 default, one ring" in second
    assert third == "verified: True\n"

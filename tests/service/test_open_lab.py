"""The lab as a Python object: the same script through a lab file and through a service, with the same output."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("fastapi")
skip_without("httpx")
skip_without("sqlalchemy")

from ocs_drivers.errors import OcsError
from testbed import open_lab, open_lab_async
from testbed.commands.documents import Document
from testbed.errors import IntentError, LeaseDenied, TopologyError, UsageError
from testbed.scripting.carriers import RunFailed, make_error

ROOT = Path(__file__).resolve().parents[2]


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
            opened.nccl(sizes="1KiB:1KiB")
        assert calls


def test_events_come_each_once(lab):
    events = lab.events(0)
    lab.apply(simplex=True)
    assert lab.apply(method="geometric").changed
    numbers = [next(events).number for _ in range(2)]
    assert numbers == sorted(set(numbers))


def test_a_coroutine_applies_and_a_cancelled_one_ends_after_its_step(up, tmp_path):
    async def main():
        async with await open_lab_async(up[1], hosts="model", runs_dir=tmp_path / "runs") as opened:
            applied, _ = await asyncio.gather(opened.apply(), asyncio.sleep(0))
            assert applied.verified
            change = asyncio.create_task(opened.apply(simplex=True))
            await asyncio.sleep(0)
            change.cancel()
            with pytest.raises(asyncio.CancelledError):
                await change
            assert await opened.resume() if (await opened.verify()).unfinished else True
            with pytest.raises(AttributeError):
                opened.nothing()

    asyncio.run(main())


def test_a_service_names_its_labs(running):
    with pytest.raises(UsageError, match=r"has no lab 'other': its labs are shared\d+"):
        open_lab(f"{running.url}/other", token=running.token("viewer"))
    with pytest.raises(UsageError, match="leave out start and runs_dir"):
        open_lab(f"{running.url}/any", start=True)


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
    block = re.sub(r'open_lab(_async)?\("[^"]*", start=True', rf"open_lab\1({source!r}{options}", block)
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


def test_the_code_of_the_how_to_runs(up, tmp_path, monkeypatch):
    monkeypatch.setenv("LIGHTBED_RUNS", str(tmp_path / "runs"))
    blocks = find_blocks("docs/how-to/script-a-lab.md")
    first, second, third = (run_block(block, str(up[1]), ', hosts="model"') for block in blocks)
    assert re.search(r"epoch 1, verified: True\n48\n", first)
    assert "1 2 default, one ring" in second
    assert third == "verified: True\n"

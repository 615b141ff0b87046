"""Labs that fail or are ended while they start: what was made is removed, and the reason is said."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, suppress

import pytest
from libraries import skip_without

skip_without("jsonschema")

from sim.lab import __main__, supervisor
from sim.lab.document import parse_document
from sim.lab.model import LabError
from sim.twins.hosts import netns
from sim.twins.hosts import redirects as fabric
from sim.twins.hosts.netns import KernelFault
from sim.twins.hosts.redirects import Fabric, LinkShape, make_far_ends
from sim.twins.hosts.twin import HostTwin


async def started(raw):
    async with AsyncExitStack() as stack:
        await supervisor.start_lab(parse_document(json.dumps(raw)), stack)


@pytest.fixture
def lab_id(monkeypatch):
    """Return the id that the next lab in this process gets."""
    monkeypatch.setattr(supervisor.secrets, "token_hex", lambda _: "0ddba1")
    return "lb0ddba1"


@pytest.mark.kernel
def test_a_host_that_does_not_boot_is_named_with_what_it_said(kernel_labs, lab_id, monkeypatch):
    script = supervisor.make_boot_script

    def broken(spec, *rest):
        return "echo no disk in here >&2; exit 3" if spec.name == "b" else script(spec, *rest)

    monkeypatch.setattr(supervisor, "make_boot_script", broken)
    with pytest.raises(KernelFault, match="host b did not start; it printed: no disk in here") as caught:
        asyncio.run(started(kernel_labs.wiring()))
    assert caught.value.code == "host"
    assert kernel_labs.traces(lab_id) == []


@pytest.mark.kernel
def test_a_start_that_is_cancelled_while_hosts_boot_leaves_nothing(kernel_labs, lab_id, monkeypatch):
    """Host a stands, host b boots for ever; then somebody asks for the end."""
    start = HostTwin.start
    a_stands = asyncio.Event()

    async def first_only(spec, *rest):
        if spec.name == "b":
            await asyncio.Event().wait()
        host = await start(spec, *rest)
        a_stands.set()
        return host

    async def cancelled():
        starting = asyncio.create_task(started(kernel_labs.wiring()))
        await a_stands.wait()
        of_a = netns.list_processes([f"{lab_id}-a"])
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await starting
        return of_a

    monkeypatch.setattr(HostTwin, "start", first_only)
    of_a = asyncio.run(cancelled())
    assert of_a != ()
    kernel_labs.eventually(lambda: not any(kernel_labs.runs(pid) for pid in of_a))
    assert kernel_labs.traces(lab_id) == []


@pytest.mark.kernel
def test_a_kernel_that_cannot_redirect_says_so_before_there_is_light(monkeypatch, request):
    monkeypatch.setattr(
        fabric, "_format_redirect", lambda source, target: f"filter add dev {source} no such thing"
    )
    names = ["tfhw-fab", "tfhw-a"]
    netns.add_namespaces(names)
    request.addfinalizer(lambda: netns.delete_namespaces(names))
    with pytest.raises(KernelFault, match="no such thing") as caught:
        Fabric("tfhw-fab", make_far_ends({"a": ("tfhw-a", ["nic1"])})).build(LinkShape(100, 9000))
    assert caught.value.code == "no_redirects"
    assert "act_mirred" in caught.value.hint


@pytest.mark.long
@pytest.mark.process
@pytest.mark.socket
def test_a_loopback_lab_that_overlaps_another_is_refused(labs):
    subnet = labs.free_subnet("127.96")
    raw = labs.document(2, subnet=subnet, mode="model")
    inside = json.loads(json.dumps(raw)) | {"management": f"{subnet}.0/25"}
    with labs.supervised(raw) as up:
        assert up.ready["ready"]
        exit_status, said = labs.refusal(inside)
    assert (exit_status, said["code"]) == (1, "subnet_taken")
    assert f"another lab uses {subnet}.0/24" in said["error"]


@pytest.mark.process
@pytest.mark.socket
def test_without_namespaces_an_address_that_nobody_has_does_not_count_as_taken(labs):
    """203.0.113.0/24 is for documentation only (RFC 5737): no machine can listen there."""
    exit_status, said = labs.refusal(labs.document(2, subnet="203.0.113", mode="model"))
    assert (exit_status, said["code"]) == (1, "kernel")
    assert said["error"].startswith("cannot listen on 203.0.113.1:7000: ")


@pytest.mark.parametrize(
    "error", [LabError("why", hint="do", code="word"), KernelFault("why", hint="do", code="word")]
)
def test_every_refusal_is_one_line_with_error_hint_and_code(monkeypatch, capsys, error):
    def fail():
        raise error

    monkeypatch.setattr(__main__, "find_labs", fail)
    assert __main__.main(["--status"]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "ready": False,
        "error": "why",
        "hint": "do",
        "code": "word",
    }


def test_what_the_machine_refuses_is_said_in_the_same_form(monkeypatch, capsys):
    def fail():
        raise PermissionError(13, "Permission denied", "/run/lightbed")

    monkeypatch.setattr(__main__, "find_labs", fail)
    assert __main__.main(["--status"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["ready"], said["code"]) == (False, "machine")
    assert "/run/lightbed" in said["error"]

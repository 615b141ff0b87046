"""The lab of a service, for one test: leased whole through the service's client, and put back by a rollback.

The service does what the test asks for as runs of its own, with its own lab file, journal and audit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import pytest

from testbed.errors import LeaseDenied, VerifyFailed
from testbed.operate.model import LinkFinding
from testbed.pytest_plugin.heartbeat import TTL_S, keep_alive
from testbed.pytest_plugin.needs import Needs
from testbed.pytest_plugin.options import LabOptions

POLL_S = 0.5
_ENDED = frozenset({"broken", "expired", "released"})


@dataclass(frozen=True, slots=True)
class ServedProof:
    """Proof of the service: its findings; `document` is what the command printed there."""

    document: Mapping[str, Any]

    @property
    def ok(self) -> bool:
        """True if everything is as planned."""
        return bool(self.document.get("verified", self.document.get("ok")))

    @property
    def findings(self) -> tuple[LinkFinding, ...]:
        """Findings, with their kind, subject, detail and hint."""
        names = ("kind", "subject", "detail", "hint")
        return tuple(LinkFinding(**{name: one[name] for name in names}) for one in self.document["findings"])


@dataclass(frozen=True, slots=True)
class ServedApply:
    """Report of an apply of the service; `verified` is its proof."""

    verified: ServedProof


@dataclass(frozen=True, slots=True)
class LabOfService:
    """A lab of a service for one test: `apply` and `verify` as of `LabOfTest`; `lab` is that of the client."""

    lab: Any
    lease: str
    hosts: Sequence[str]
    options: Mapping[str, Any]

    def apply(self, *, simplex: bool = False, method: str | None = None) -> ServedApply:
        """Patch a topology of all hosts, install its routes, prove both. Raises `VerifyFailed` for a run that fails."""
        return ServedApply(ServedProof(self.run("apply", simplex=simplex, method=method)))

    def verify(self) -> ServedProof:
        """Compare the lab with what was applied last."""
        return ServedProof(self._run("verify", {}))

    def run(self, command: str, **options: Any) -> Mapping[str, Any]:
        """Have the service run a command that moves the lab, under the lease; return what it printed."""
        return self._run(command, {"lease": self.lease, **self.options, **options})

    def _run(self, command: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
        given = {name: value for name, value in options.items() if value not in (None, False)}
        run = self.lab.run(command, **given)
        result = run.result if isinstance(run.result, Mapping) else {}
        if not result or "error" in result:  # what is not proven is no error: its document has the findings
            why = result.get("error", {}).get("message") or run.messages or f"exit code {run.exit_code}"
            raise VerifyFailed(f"run {run.id} ({command}) of the service is {run.state}: {why}")
        return dict(result)


@contextmanager
def lease_served_lab(needs: Needs, options: LabOptions, test: str) -> Iterator[LabOfService]:
    """Lease a lab of a service, and go back to the epoch that was in force. Skips where that cannot be.

    Raises the errors of the client where the service does not answer or refuses.
    """
    from testbed.client import connect

    with connect(options.server) as client:
        lab, hosts = _choose_lab(client, options, needs)
        lease = _wait_granted(lab, options.wait_s, test)
        moves = {"hosts": options.hosts, "really_move": options.really_move}
        given = LabOfService(lab, lease, hosts, moves)
        try:
            with keep_alive(lambda: lab.extend_lease(lease)):
                before = _epoch_to_keep(lab)
                try:
                    yield given
                finally:
                    _put_back(given, before)
        finally:
            lab.release_lease(lease)


def _choose_lab(client: Any, options: LabOptions, needs: Needs) -> tuple[Any, Sequence[str]]:
    """Return the lab that is named, or the only one, and its hosts."""
    names = [one["name"] for one in client.labs()]
    if options.name not in names and (options.name or len(names) != 1):
        raise pytest.UsageError(
            f"--lab-server {options.server} has the labs {', '.join(names) or '(none)'}: choose one with "
            "--lab-name"
        )
    lab = client.lab(options.name or names[0])
    hosts = lab.look("hosts")["hosts"]
    fitting = [host["name"] for host in hosts if len(host["nics"]) >= (needs.degree or 1)]
    if len(fitting) < (needs.hosts or 1):
        _skip(
            lab, f"it has {len(fitting)} hosts of {needs.degree or 1} NICs, and {needs.hosts or 1} are needed"
        )
    if needs.gpus or needs.board:
        _skip(lab, "GPUs and boards are not told by a service: name a lab file by --lab")
    stopped = lab.state().get("maintenance")
    if stopped:
        _skip(lab, f"it is under maintenance: {stopped.get('reason', '')}")
    return lab, [host["name"] for host in hosts]


def _wait_granted(lab: Any, wait_s: float, test: str) -> str:
    deadline = time.monotonic() + wait_s
    lease = lab.request_lease([], ttl_s=TTL_S, reason=f"pytest: {test}")
    while lease["state"] != "granted":
        if time.monotonic() > deadline or lease["state"] in _ENDED:
            if lease["state"] not in _ENDED:
                lab.release_lease(lease["id"])
            raise LeaseDenied(
                f"lab '{lab.name}' was not granted within {wait_s:g} s; see `testbed lease list`"
            )
        time.sleep(POLL_S)
        lease = lab.extend_lease(lease["id"])
    return str(lease["id"])


def _epoch_to_keep(lab: Any) -> int:
    """Return the epoch that is in force. Skips where it is not proven, or nothing was applied: nobody could go back."""
    epochs = lab.look("history")["epochs"]
    if not epochs:
        _skip(lab, "no epoch is in force on it to go back to: `testbed apply` first")
    if not epochs[0]["verified"]:
        _skip(
            lab,
            f"it is marked broken: epoch {epochs[0]['id']} is {epochs[0]['state']}; `testbed apply` proves it",
        )
    return int(epochs[0]["id"])


def _put_back(given: LabOfService, before: int) -> None:
    if given.lab.look("history")["epochs"][0]["id"] == before:
        return
    document = given.run("rollback", epoch=before)
    if not document["verified"]:
        found = "; ".join(one["detail"] for one in document["findings"])
        raise VerifyFailed(f"epoch {before} of lab '{given.lab.name}' is restored, but not verified: {found}")


def _skip(lab: Any, reason: str) -> NoReturn:
    pytest.skip(f"lab '{lab.name}': {reason}")

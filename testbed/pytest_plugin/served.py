"""A whole lab of a service for one test: leased through the service's client, and restored by a rollback.

The test's requests become runs of the service, with its own lab file, journal and audit log.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import pytest

from testbed.errors import LeaseDenied, VerifyFailed
from testbed.leases.heartbeat import TTL_S, keep_alive
from testbed.operate.model import LinkFinding
from testbed.pytest_plugin.needs import Needs
from testbed.pytest_plugin.options import LabOptions

POLL_S = 0.5
_ENDED = frozenset({"broken", "expired", "released"})


@dataclass(frozen=True, slots=True)
class ServedProof:
    """Proof by the service; `document` is the document that its command printed."""

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
    """Report of an apply by the service; `verified` is its proof."""

    verified: ServedProof


@dataclass(frozen=True, slots=True)
class LabOfService:
    """A lab of a service for one test, with `apply` and `verify` as in `LabOfTest`; `lab` is the client's object."""

    lab: Any
    lease: str
    hosts: Sequence[str]
    options: Mapping[str, Any]

    def apply(self, *, simplex: bool = False, method: str | None = None) -> ServedApply:
        """Patch a topology of all hosts, install its routes and verify both. Raises `VerifyFailed` if the run fails."""
        return ServedApply(ServedProof(self.run("apply", simplex=simplex, method=method)))

    def verify(self) -> ServedProof:
        """Compare the lab with the topology in force. Raises `VerifyFailed` if the run fails."""
        return ServedProof(self._run("verify", {}))

    def run(self, command: str, **options: Any) -> Mapping[str, Any]:
        """Run a command that changes the lab on the service, under the lease, and return its document."""
        return self._run(command, {"lease": self.lease, **self.options, **options})

    def _run(self, command: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
        fields = {name: value for name, value in options.items() if value not in (None, False)}
        run = self.lab.run(command, **fields)
        result = run.result if isinstance(run.result, Mapping) else {}
        if not result or "error" in result:  # a proof with findings is not an error: its document has them
            why = result.get("error", {}).get("message") or run.messages or f"exit code {run.exit_code}"
            raise VerifyFailed(f"run {run.id} ({command}) of the service is {run.state}: {why}")
        return dict(result)


@contextmanager
def lease_served_lab(needs: Needs, options: LabOptions, test: str) -> Iterator[LabOfService]:
    """Lease a lab of a service, and roll back to the earlier epoch at the end. Skips the test if that is impossible.

    Raises the errors of the client if the service does not answer or refuses.
    """
    from testbed.client import connect

    with connect(options.server) as client:
        lab, hosts = _choose_lab(client, options, needs)
        lease = _wait_granted(lab, options.wait_s, test)
        moves = {"hosts": options.hosts, "really_move": options.really_move}
        lab_of_test = LabOfService(lab, lease, hosts, moves)
        try:
            with keep_alive(lambda: lab.extend_lease(lease)):
                before = _epoch_to_keep(lab)
                try:
                    yield lab_of_test
                finally:
                    _restore(lab_of_test, before)
        finally:
            lab.release_lease(lease)


def _choose_lab(client: Any, options: LabOptions, needs: Needs) -> tuple[Any, Sequence[str]]:
    """Return the lab of --lab-name, or the only one, and its hosts. Skips the test if the lab does not fit it."""
    names = [one["name"] for one in client.list_labs()]
    if options.name not in names and (options.name or len(names) != 1):
        raise pytest.UsageError(
            f"--lab-server {options.server} has the labs {', '.join(names) or '(none)'}: choose one with "
            "--lab-name"
        )
    lab = client.lab(options.name or names[0])
    hosts = lab.read("hosts")["hosts"]
    fitting = [host["name"] for host in hosts if len(host["nics"]) >= (needs.degree or 1)]
    if len(fitting) < (needs.hosts or 1):
        _skip(
            lab, f"it has {len(fitting)} hosts of {needs.degree or 1} NICs, and {needs.hosts or 1} are needed"
        )
    if needs.gpus or needs.board:
        _skip(lab, "a service does not report GPUs and boards: pass a lab file with --lab")
    maintenance = lab.read_state().get("maintenance")
    if maintenance:
        _skip(lab, f"it is under maintenance: {maintenance.get('reason', '')}")
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
    """Return the epoch in force. Skips the test without a verified one, to which it could roll back."""
    epochs = lab.read("history")["epochs"]
    if not epochs:
        _skip(lab, "no epoch is in force on it to go back to: `testbed apply` first")
    if not epochs[0]["verified"]:
        _skip(
            lab,
            f"it is marked broken: epoch {epochs[0]['id']} is {epochs[0]['state']}; `testbed apply` proves it",
        )
    return int(epochs[0]["id"])


def _restore(lab_of_test: LabOfService, before: int) -> None:
    if lab_of_test.lab.read("history")["epochs"][0]["id"] == before:
        return
    document = lab_of_test.run("rollback", epoch=before)
    if not document["verified"]:
        details = "; ".join(one["detail"] for one in document["findings"])
        name = lab_of_test.lab.name
        raise VerifyFailed(f"epoch {before} of lab '{name}' is restored, but not verified: {details}")


def _skip(lab: Any, reason: str) -> NoReturn:
    pytest.skip(f"lab '{lab.name}': {reason}")

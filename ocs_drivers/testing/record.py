"""The record of a conformance run: what was tried on which switch, and how it ended.

A JSON document with a SHA-256 over its content. With `sign_with`, an OpenSSH private key, a signature lies next to it
(`FILE.sig`, namespace `lightbed-conformance`); anybody who has the public key can check it:

    ssh-keygen -Y verify -f allowed_signers -I lab -n lightbed-conformance -s FILE.sig < FILE

The digest proves that the document was not damaged, the signature who vouches for it; neither proves that
a device was real. A simulated switch says so in its serial number.
"""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from lightbed.output_file import write_output
from ocs_drivers.contract import OpticalSwitch
from ocs_drivers.errors import OcsError

NAMESPACE = "lightbed-conformance"


def now() -> str:
    """Return the time of day, as it stands in a record."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class RecordError(OcsError, code="ocs.record", who="user"):
    """The record cannot be written, signed or believed."""


@dataclass(slots=True)
class Record:
    """Collects the results of one run; `results` are by test name: passed, failed or skipped with the reason."""

    address: str
    results: dict[str, str] = field(default_factory=dict)
    switch: dict[str, Any] = field(default_factory=dict)
    started: str = field(default_factory=now)

    def describe(self, switch: OpticalSwitch) -> None:
        """Note who answered and what it can do."""
        self.address = switch.address
        self.switch = {
            "identity": asdict(switch.identity()),
            "capabilities": asdict(switch.capabilities),
            "driver": f"{type(switch).__module__}.{type(switch).__qualname__}",
            "simulated": switch.identity().serial.startswith("SIM"),
        }

    def document(self) -> dict[str, Any]:
        """Return the record with its digest."""
        content = {
            "record": NAMESPACE,
            "address": self.address,
            "switch": self.switch,
            "lightbed": _own_version(),
            "python": platform.python_version(),
            "started": self.started,
            "ended": now(),
            "results": dict(sorted(self.results.items())),
        }
        return {**content, "sha256": digest(content)}


def digest(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the content as canonical JSON, without its own `sha256`.

    >>> digest({"a": 1}) == digest({"a": 1, "sha256": "anything"})
    True
    """
    rest = {key: value for key, value in content.items() if key != "sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sha256(text.encode()).hexdigest()


def write_record(record: Record, path: Path, *, sign_with: Path | None = None) -> None:
    """Write the record, and its signature when a key is given. Raises `RecordError`."""
    write_output(path, json.dumps(record.document(), indent=1, sort_keys=True) + "\n")
    if sign_with is None:
        return
    command = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(sign_with), "-n", NAMESPACE, str(path)]
    path.with_name(path.name + ".sig").unlink(missing_ok=True)
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = (getattr(error, "stderr", "") or str(error)).strip()
        raise RecordError(
            f"the record {path} was written but could not be signed: {reason}",
            hint="Give an OpenSSH private key that needs no passphrase or is in the agent.",
        ) from error


def read_record(path: Path) -> dict[str, Any]:
    """Read a record whose digest is right. Raises `RecordError`."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if document.get("sha256") != digest(document):
        raise RecordError(f"{path} was changed after it was written", hint="Run the suite again.")
    return document


def _own_version() -> str:
    try:
        return version("lightbed")
    except PackageNotFoundError:  # used from a checkout that was never installed
        return "unknown"

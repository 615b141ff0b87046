"""Lifecycle of a simulated lab: start from its lab file, status, and removal.

Simulated devices ("twins") answer at the addresses of the lab file, so other code need not know that the lab is
simulated. Hosts accept an SSH key that is created once per user.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from testbed.errors import LabStartError
from testbed.lab.simulated.supervisor import (
    START_TIMEOUT_S,
    StartRefused,
    Supervisor,
    run_sim_lab_query,
    start_supervisor,
)

if TYPE_CHECKING:
    from testbed.lab.model import Lab
    from testbed.lab.simulated.link_rate import LinkRate
    from testbed.lab.simulated.wiring_document import HostsMode


HostsChoice = Literal["kernel", "model", "auto"]
HostsInUse = Literal["real", "kernel", "model"]
BOARD_START_TIMEOUT_S = 600.0
"""Time limit of `sim.lab` for the programs of boards to become ready."""


@dataclass(slots=True)
class SimulatedLab:
    """A running simulated lab: a context manager that removes the lab on exit unless it is detached.

    `lab` has the actual addresses. They differ from the lab file if its subnet was in use or hosts are modelled.
    `control_addresses` maps the name of each switch, and the key `plant` for the simulated fibres, to the address of a
    control socket. `mode_reason` says why hosts are modelled, and `shared_root` why they share the root file system of
    this machine. `link_rate` is None if the lab file fixes the rate or hosts are modelled. `boards[board][port]` is
    the document of the NIC of a port that serves a program.
    """

    lab: Lab
    hosts_mode: HostsMode
    lab_id: str
    pid: int
    control_addresses: Mapping[str, str]
    mode_reason: str
    _supervisor: Supervisor
    link_rate: LinkRate | None = None
    shared_root: str = ""
    boards: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if not self._supervisor.is_detached:
            self.close()

    def close(self) -> None:
        """End the lab and wait until everything it created is removed. May be called again."""
        self._supervisor.stop()

    @property
    def is_running(self) -> bool:
        """True while the supervisor runs."""
        return self._supervisor.process.poll() is None


def start_lab(
    lab: Lab,
    *,
    hosts: HostsChoice = "auto",
    is_detached: bool = False,
    may_move: bool = False,
    timeout_s: float = START_TIMEOUT_S,
) -> SimulatedLab:
    """Start the simulated lab and return when it is ready.

    `auto` uses kernel hosts if possible; otherwise `mode_reason` says why not. `may_move` allows the next free subnet
    (10.99.0.0/24 and up, 127.99.0.0/24 and up for modelled hosts) if the lab's own is in use. Links of a lab file with
    `fit_rate` get the rate that this machine can carry. Raises `LabStartError`.
    """
    if not lab.simulated:
        raise LabStartError(
            f"lab '{lab.name}' is real and already runs; only a lab with 'simulated: true' can be started"
        )
    from testbed.lab.inventory import fix_link_rate

    public_key = ensure_key(lab.ssh_key)
    mode, reason = _choose_mode(hosts)
    link_rate = choose_link_rate(lab, mode)
    lab = fix_link_rate(lab, link_rate.rate_mbps if link_rate else lab.link.rate_mbps)
    running_lab = _start_in_subnet(
        lab, mode, reason, public_key, is_detached=is_detached, may_move=may_move, timeout_s=timeout_s
    )
    running_lab.link_rate = link_rate
    return running_lab


def set_link_rate(lab: Lab, rate_mbps: float | None) -> Lab:
    """Return the simulated lab with links of this rate; None changes nothing. Raises `LabStartError` for a real lab."""
    if rate_mbps is None:
        return lab
    from testbed.lab.inventory import fix_link_rate

    if not lab.simulated:
        raise LabStartError(f"lab '{lab.name}' is real: the rate of its links is fixed")
    return fix_link_rate(lab, rate_mbps)


def choose_link_rate(lab: Lab, mode: HostsMode) -> LinkRate | None:
    """Return the rate that this machine can carry, or None if the lab file fixes it or hosts are modelled."""
    if not lab.link.fit_rate or mode == "model":
        return None
    from testbed.lab.simulated.link_rate import fit_rate, measure_machine

    return fit_rate(lab.link.rate_mbps, measure_machine(), sum(len(host.nics) for host in lab.hosts))


def _choose_mode(hosts_choice: HostsChoice) -> tuple[HostsMode, str]:
    if hosts_choice != "auto":
        return hosts_choice, "as requested" if hosts_choice == "model" else ""
    if os.geteuid() != 0:
        return "model", "kernel hosts need root"
    unshare_result = subprocess.run(
        ["unshare", "--net", "--uts", "--mount", "true"], capture_output=True, check=False
    )
    if unshare_result.returncode:
        return "model", "this kernel or container refuses new namespaces"
    return "kernel", ""


def _start_in_subnet(
    lab: Lab,
    mode: HostsMode,
    reason: str,
    public_key: str,
    *,
    is_detached: bool,
    may_move: bool,
    timeout_s: float,
) -> SimulatedLab:
    """Start the lab in its own subnet or, if allowed, in the first candidate that is free."""
    from testbed.lab.inventory import relocate
    from testbed.lab.simulated.wiring_document import make_wiring_document

    refusal: StartRefused | None = None
    for subnet in list_candidate_subnets(lab.management, mode, may_move=may_move):
        actual_lab = lab if subnet == lab.management else relocate(lab, subnet)
        document = make_wiring_document(actual_lab, hosts=mode, public_key=public_key)
        try:
            supervisor = start_supervisor(
                document, is_detached=is_detached, timeout_s=timeout_s + _find_board_time_s(actual_lab, mode)
            )
        except StartRefused as refused:
            if refused.reason != "subnet_taken":
                raise
            refusal = refused
            continue
        ready_message = supervisor.ready_message
        return SimulatedLab(
            actual_lab,
            ready_message["hosts"],
            ready_message["lab_id"],
            ready_message["pid"],
            ready_message["control"],
            reason,
            supervisor,
            shared_root=ready_message["shared_root"],
            boards=ready_message.get("boards", {}),
        )
    assert refusal is not None  # there is at least one candidate
    if may_move:
        raise refusal
    hint = f"{refusal.hint}, or use the next free one: `testbed sim up {lab.path} --move`"
    raise StartRefused(refusal.reason, refusal.what, hint) from refusal


def _find_board_time_s(lab: Lab, mode: HostsMode) -> float:
    """Return the extra time that programs of boards may take, because the first program builds a simulator."""
    return BOARD_START_TIMEOUT_S if mode == "kernel" and any(board.program for board in lab.boards) else 0.0


def list_candidate_subnets(
    lab_subnet: IPv4Network, mode: HostsMode, *, may_move: bool
) -> Iterator[IPv4Network]:
    """Yield the subnets to try, the lab's own first. Modelled hosts can only use the loopback network."""
    is_usable = mode == "kernel" or lab_subnet.is_loopback
    if is_usable:
        yield lab_subnet
    if may_move or not is_usable:
        pool = IPv4Network("10.99.0.0/16" if mode == "kernel" else "127.99.0.0/16")
        prefix_length = max(16, min(lab_subnet.prefixlen, 24))  # a /24 unless the lab needs more
        yield from (subnet for subnet in pool.subnets(new_prefix=prefix_length) if subnet != lab_subnet)


def find_hosts_in_use(lab: Lab, hosts_choice: HostsChoice = "auto") -> HostsInUse:
    """Return the kind of hosts of a running lab: `real`, or for a simulated lab `kernel` or `model`.

    `auto` decides by the addresses: only modelled labs use the loopback network.
    """
    if not lab.simulated:
        return "real"
    if hosts_choice != "auto":
        return hosts_choice
    return "model" if lab.management.is_loopback else "kernel"


def find_running_lab(lab: Lab) -> Lab:
    """Return the lab with the addresses and the link rate of the live simulated lab of the same name.

    The addresses differ from the lab file if hosts are modelled or the lab was moved, and the rate may be lower. A lab
    that is real or not running is returned unchanged. Raises `LabStartError` if several labs of that name run, all at
    other addresses.
    """
    if not lab.simulated:
        return lab
    rate_by_subnet = {
        entry["subnet"]: entry["rate_mbps"]
        for entry in list_simulated_labs()
        if entry["live"] and entry["lab"] == lab.name
    }
    if not rate_by_subnet:
        return lab
    from testbed.lab.inventory import fix_link_rate, relocate

    own_subnet = str(lab.management)
    if own_subnet not in rate_by_subnet and len(rate_by_subnet) > 1:
        problem = f"lab '{lab.name}' is running {len(rate_by_subnet)} times, in {', '.join(rate_by_subnet)}"
        raise LabStartError(
            f"{problem}; name the lab file that `testbed sim up` printed for yours, or stop the others"
        )
    subnet = own_subnet if own_subnet in rate_by_subnet else next(iter(rate_by_subnet))
    running_lab = lab if subnet == own_subnet else relocate(lab, IPv4Network(subnet))
    return fix_link_rate(running_lab, rate_by_subnet[subnet]) if rate_by_subnet[subnet] else running_lab


def is_up(lab: Lab) -> bool:
    """Return whether a live simulated lab of this name runs at the lab's own addresses."""
    name_and_subnet = (lab.name, str(lab.management))
    return any(
        entry["live"] and (entry["lab"], entry["subnet"]) == name_and_subnet
        for entry in list_simulated_labs()
    )


def list_simulated_labs() -> list[dict[str, Any]]:
    """Return every simulated lab here: `lab_id`, `lab`, `live`, `hosts`, `pid`, `subnet`, `rate_mbps`, `user`.

    An entry that is not live describes the remains of a killed supervisor, of which only the id is known.
    """
    return [
        {
            "lab_id": entry["id"],
            "lab": entry["lab"],
            "live": entry["state"] == "live",
            "hosts": "kernel" if entry["namespaces"] else "model",
            "pid": entry["pid"],
            "subnet": entry["subnet"],
            "rate_mbps": entry["rate_mbps"],
            "user": entry["user"],
        }
        for entry in run_sim_lab_query(["--status"])
    ]


def remove_simulated_labs(lab_ids: Iterable[str] = (), *, all_labs: bool = False) -> tuple[str, ...]:
    """Remove the remains of killed supervisors, and the live labs with these ids. Return the ids of what was removed.

    With `all_labs`, remove all live labs of this user. Raises `LabStartError` for an unknown id.
    """
    return tuple(run_sim_lab_query(["--down", *lab_ids, *(["--all"] if all_labs else [])])["removed"])


def find_running_lab_id(lab: Lab) -> str:
    """Return the id of the live simulated lab of a lab file. Raises `LabStartError` if there is none, or several."""
    name_and_subnet = (lab.name, str(find_running_lab(lab).management))
    for entry in list_simulated_labs():
        if entry["live"] and (entry["lab"], entry["subnet"]) == name_and_subnet:
            return str(entry["lab_id"])
    raise LabStartError(
        f"no simulated lab '{lab.name}' is running: `testbed sim status` lists those that are"
    )


def ensure_key(path: Path) -> str:
    """Create the ed25519 key unless it exists, and return its public line (`ssh-ed25519 AAAA... lightbed`).

    Concurrent processes get the same key: a new key is written to a temporary file and linked into place only if the
    path is still free. Raises `OSError` if the directory cannot be written, `asyncssh.KeyImportError` if the file is
    not a key.
    """
    import asyncssh

    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write_new_file(
            path, asyncssh.generate_private_key("ssh-ed25519", comment="lightbed").export_private_key()
        )
    return asyncssh.read_private_key(path).export_public_key().decode().strip()


def _write_new_file(path: Path, content: bytes) -> None:
    """Write a file of mode 0600 atomically. An existing file stays unchanged."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary_path = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        path.hardlink_to(temporary_path)
    except FileExistsError:
        pass
    finally:
        temporary_path.unlink()

"""A simulated lab: start it from its lab file, find those that run, take them down.

Twins answer on the very addresses of the lab file, so nothing else needs to know that the lab is simulated. Hosts
let us in by an SSH key that is made once per user.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from testbed.errors import LabStartError
from testbed.lab.simulated.supervisor import START_TIMEOUT_S, StartRefused, Supervisor, ask, start

if TYPE_CHECKING:
    from testbed.lab.model import Lab
    from testbed.lab.simulated.link_rate import LinkRate
    from testbed.lab.simulated.wiring_document import HostsMode


HostsChoice = Literal["kernel", "model", "auto"]
HostsInUse = Literal["real", "kernel", "model"]


@dataclass(slots=True)
class SimulatedLab:
    """A simulated lab that is up. A context manager; leaving it tears the lab down unless it is detached.

    `lab` is the lab where it really is (relocated when its subnet was taken or has no namespaces),
    `control` maps each switch and `plant` to the address of its control socket, `reason` says why hosts
    are only modelled when `kernel` was not possible, `shared_root` why they share this machine's root file system
    when each could not have its own, `link_rate` how the rate of the links was chosen (None when the
    lab file fixes it).
    """

    lab: Lab
    hosts: HostsMode
    lab_id: str
    pid: int
    control: Mapping[str, str]
    reason: str
    _supervisor: Supervisor
    link_rate: LinkRate | None = None
    shared_root: str = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if not self._supervisor.detached:
            self.close()

    def close(self) -> None:
        """End the lab and wait until everything it made is gone. Safe to call again."""
        self._supervisor.stop()

    @property
    def is_running(self) -> bool:
        """True while the supervisor lives."""
        return self._supervisor.process.poll() is None


def start_lab(
    lab: Lab,
    *,
    hosts: HostsChoice = "auto",
    detached: bool = False,
    move: bool = False,
    timeout_s: float = START_TIMEOUT_S,
) -> SimulatedLab:
    """Start the simulated lab and return when it is ready.

    `auto` takes kernel hosts where that is possible and says in `reason` why not. `move` allows the next
    free subnet (10.99.0.0/24 and up, 127.99.0.0/24 and up for modelled hosts) when the lab's own is taken.
    Links of a lab file with `fit_rate` get the rate that this machine can carry.
    Raises `LabStartError`.
    """
    if not lab.simulated:
        raise LabStartError(
            f"lab '{lab.name}' is real and already runs; only a lab with 'simulated: true' can be started"
        )
    from testbed.lab.inventory import with_rate

    public_key = ensure_key(lab.ssh_key)
    mode, reason = _choose_mode(hosts)
    link_rate = choose_rate(lab, mode)
    lab = with_rate(lab, link_rate.rate_mbps if link_rate else lab.link.rate_mbps)
    up = _start_somewhere(lab, mode, reason, public_key, detached=detached, move=move, timeout_s=timeout_s)
    up.link_rate = link_rate
    return up


def at_rate(lab: Lab, rate_mbps: float | None) -> Lab:
    """Return the simulated lab with links of this rate, None for its own. Raises `LabStartError` for a real one."""
    if rate_mbps is None:
        return lab
    from testbed.lab.inventory import with_rate

    if not lab.simulated:
        raise LabStartError(f"lab '{lab.name}' is real: the rate of its links is fixed")
    return with_rate(lab, rate_mbps)


def choose_rate(lab: Lab, mode: HostsMode) -> LinkRate | None:
    """Return the rate that this machine can carry; None when the lab file fixes it, and where no packet is moved."""
    if not lab.link.fit_rate or mode == "model":
        return None
    from testbed.lab.simulated.link_rate import fit_rate, look_at_machine

    return fit_rate(lab.link.rate_mbps, look_at_machine(), sum(len(host.nics) for host in lab.hosts))


def _choose_mode(hosts: HostsChoice) -> tuple[HostsMode, str]:
    if hosts != "auto":
        return hosts, "asked for" if hosts == "model" else ""
    if os.geteuid() != 0:
        return "model", "kernel hosts need root"
    tried = subprocess.run(["unshare", "--net", "--uts", "--mount", "true"], capture_output=True, check=False)
    if tried.returncode:
        return "model", "this kernel or container refuses new namespaces"
    return "kernel", ""


def _start_somewhere(
    lab: Lab, mode: HostsMode, reason: str, public_key: str, *, detached: bool, move: bool, timeout_s: float
) -> SimulatedLab:
    """Start in the lab's own subnet or, when allowed, in the first candidate that is free."""
    from testbed.lab.inventory import relocate
    from testbed.lab.simulated.wiring_document import wiring_document

    taken: StartRefused | None = None
    for subnet in candidate_subnets(lab.management, mode, move=move):
        moved = lab if subnet == lab.management else relocate(lab, subnet)
        document = wiring_document(moved, hosts=mode, public_key=public_key)
        try:
            supervisor = start(document, detached=detached, timeout_s=timeout_s)
        except StartRefused as refused:
            if refused.reason != "subnet_taken":
                raise
            taken = refused
            continue
        ready = supervisor.ready
        return SimulatedLab(
            moved,
            ready["hosts"],
            ready["lab_id"],
            ready["pid"],
            ready["control"],
            reason,
            supervisor,
            shared_root=ready["shared_root"],
        )
    assert taken is not None  # at least one candidate was tried
    if move:
        raise taken
    hint = f"{taken.hint}, or let it take the next free one: `testbed sim up {lab.path} --move`"
    raise StartRefused(taken.reason, taken.what, hint) from taken


def candidate_subnets(own: IPv4Network, mode: HostsMode, *, move: bool) -> Iterator[IPv4Network]:
    """Yield subnets to try, in order: the lab's own first; modelled hosts can only live on the loopback network."""
    usable = mode == "kernel" or own.is_loopback
    if usable:
        yield own
    if move or not usable:
        first = IPv4Network("10.99.0.0/16" if mode == "kernel" else "127.99.0.0/16")
        prefix = max(16, min(own.prefixlen, 24))  # a /24 unless the lab needs more
        yield from (subnet for subnet in first.subnets(new_prefix=prefix) if subnet != own)


def hosts_of(lab: Lab, hosts: HostsChoice = "auto") -> HostsInUse:
    """Return what the hosts of a lab that is up are: `real`, or of a simulated one `kernel` or only modelled.

    `auto` goes by the addresses: modelled labs live on the loopback network, and nothing else does.
    """
    if not lab.simulated:
        return "real"
    if hosts != "auto":
        return hosts
    return "model" if lab.management.is_loopback else "kernel"


def find_running(lab: Lab) -> Lab:
    """Return the lab as it really is: at its own addresses, or where the one live simulated lab of its name is.

    Modelled labs and those that had to move are not at the lab file's addresses, and links may have a lower rate than
    the lab file's. Real labs are returned as they are. Raises `LabStartError` when several live labs of that name are
    elsewhere.
    """
    if not lab.simulated:
        return lab
    rates = {
        entry["subnet"]: entry["rate_mbps"]
        for entry in lab_status()
        if entry["live"] and entry["lab"] == lab.name
    }
    if not rates:
        return lab
    from testbed.lab.inventory import relocate, with_rate

    here = str(lab.management)
    if here not in rates and len(rates) > 1:
        what = f"lab '{lab.name}' runs {len(rates)} times, in {', '.join(rates)}"
        raise LabStartError(
            f"{what}; name the lab file that `testbed sim up` printed for yours, or stop the others"
        )
    subnet = here if here in rates else next(iter(rates))
    found = lab if subnet == here else relocate(lab, IPv4Network(subnet))
    return with_rate(found, rates[subnet]) if rates[subnet] else found


def is_up(lab: Lab) -> bool:
    """Return whether a live simulated lab of this name stands at the lab's own addresses."""
    here = (lab.name, str(lab.management))
    return any(entry["live"] and (entry["lab"], entry["subnet"]) == here for entry in lab_status())


def lab_status() -> list[dict[str, Any]]:
    """Return every simulated lab here: `lab_id`, `lab`, `live`, `hosts`, `pid`, `subnet`, `rate_mbps`, `user`.

    One that is not live is what a killed supervisor left behind; only its id is known.
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
        for entry in ask(["--status"])
    ]


def lab_down(ids: Iterable[str] = (), *, all_labs: bool = False) -> tuple[str, ...]:
    """Remove labs whose supervisor is gone and live ones named by id, with `all_labs` this user's; return their ids.

    Raises `LabStartError` for an id that no lab has.
    """
    return tuple(ask(["--down", *ids, *(["--all"] if all_labs else [])])["removed"])


def id_of_running(lab: Lab) -> str:
    """Return the id of the live simulated lab of a lab file. Raises `LabStartError` when there is none, or several."""
    here = (lab.name, str(find_running(lab).management))
    for entry in lab_status():
        if entry["live"] and (entry["lab"], entry["subnet"]) == here:
            return str(entry["lab_id"])
    raise LabStartError(
        f"no simulated lab '{lab.name}' is running: `testbed sim status` lists those that are"
    )


def ensure_key(path: Path) -> str:
    """Make the ed25519 key unless it exists, and return its public line (`ssh-ed25519 AAAA... lightbed`).

    Two processes at once end with one and the same key: a key is written aside and linked into place only
    if nobody was first. Raises `OSError` when the directory cannot be written, `asyncssh.KeyImportError`
    when the file is not a key.
    """
    import asyncssh

    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _place(path, asyncssh.generate_private_key("ssh-ed25519", comment="lightbed").export_private_key())
    return asyncssh.read_private_key(path).export_public_key().decode().strip()


def _place(path: Path, content: bytes) -> None:
    """Write a file of mode 0600 that appears complete or not at all, and never replaces another's."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    aside = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        path.hardlink_to(aside)
    except FileExistsError:
        pass
    finally:
        aside.unlink()

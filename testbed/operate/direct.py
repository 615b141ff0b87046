"""Changes of a switch that is given by its address, under the leases and emergency stops of its labs.

The journal shows to which labs a switch belongs, because each step stores the address of its switch. A switch that no
lab of the database has changed belongs to no lab.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ocs_drivers.address import parse_address
from ocs_drivers.engine.device_lock import make_lock_names
from ocs_drivers.errors import AddressError
from testbed.errors import JournalError, LeaseDenied
from testbed.leases.choice import get_selected_lease
from testbed.leases.listing import read_leases
from testbed.operate.engine.consent import EmergencyStop
from testbed.storage.address import get_database_address
from testbed.storage.reading import explain_unreadable, is_database_error, read_rows

_SWITCH_ADDRESSES_QUERY = (
    "select distinct o.lab, s.switch, s.address from steps s join operations o on o.id = s.operation "
    "where s.address <> ?"
)


@contextmanager
def lease_ports(runs_dir: Path, address: str, ports: frozenset[int]) -> Iterator[None]:
    """Lease ports of a switch in every lab to which it belongs, for the duration of the `with` block.

    Uses the lease of `--lease`, or an implicit one. Raises `LeaseDenied` and its subclasses, `OperationStopped`, and
    `JournalError` if the database cannot be read or written: then nothing may be sent.
    """
    switches_by_lab = find_labs_with_switch(runs_dir, address)
    if not switches_by_lab:
        if get_selected_lease():
            problem = (
                f"no lab of the database in {runs_dir} has changed {address}, "
                f"so lease {get_selected_lease()} does not hold it"
            )
            raise LeaseDenied(
                f"{problem}; leave out --lease, or give the --runs-dir or --database of its lab"
            )
        yield
        return
    for lab in switches_by_lab:
        EmergencyStop(runs_dir, lab).check()
    with ExitStack() as stack:
        if ports:  # no ports: removing a circuit that does not exist changes nothing
            _hold_fences(stack, runs_dir, switches_by_lab, ports)
        yield


def _hold_fences(
    stack: ExitStack, runs_dir: Path, switches_by_lab: Mapping[str, set[str]], ports: frozenset[int]
) -> None:
    from testbed.leases.fence import hold_fence  # SQLAlchemy: not imported for a switch of no lab
    from testbed.storage.database import Database

    database = Database(get_database_address(runs_dir))
    stack.callback(database.close)
    lab_of_lease = next(
        (
            lab
            for lab in switches_by_lab
            if any(
                lease.id == get_selected_lease() for lease in read_leases(get_database_address(runs_dir), lab)
            )
        ),
        min(switches_by_lab),
    )
    for lab in sorted(switches_by_lab):
        parts = frozenset(f"port:{switch}/{port}" for switch in switches_by_lab[lab] for port in ports)
        fence = hold_fence(database, lab, parts, requested_lease_id=None if lab == lab_of_lease else "")
        stack.enter_context(stack.enter_context(fence).guard_sending())


def find_labs_with_switch(runs_dir: Path, address: str) -> dict[str, set[str]]:
    """Return the labs that have changed the switch at an address, with its names in each. Raises `JournalError`."""
    database_address = get_database_address(runs_dir)
    try:
        rows = read_rows(database_address, _SWITCH_ADDRESSES_QUERY, ("",))
    except Exception as error:
        if not is_database_error(error):
            raise
        problem = f"cannot find out whether {address} is part of a lab: {explain_unreadable(database_address, error)}"
        raise JournalError(f"{problem}; nothing was sent. Give another --runs-dir") from error
    switches_by_lab: defaultdict[str, set[str]] = defaultdict(set)
    for row in rows:
        if is_same_device(address, row["address"]):
            switches_by_lab[row["lab"]].add(row["switch"])
    return dict(switches_by_lab)


def is_same_device(address: str, other_address: str) -> bool:
    """Return whether two addresses name one device: the same endpoint, or two protocols of one vendor on one host.

    >>> is_same_device("polatis+tl1://127.0.0.1:3082", "polatis+scpi://127.0.0.1:5025")
    True
    >>> is_same_device("polatis+tl1://127.0.0.1:3082", "polatis+tl1://127.0.0.1:3083")
    False
    """
    if not set(make_lock_names(address)).isdisjoint(make_lock_names(other_address)):
        return True
    try:
        parsed_address, other_parsed_address = parse_address(address), parse_address(other_address)
    except AddressError:
        return False
    if parsed_address.scheme == other_parsed_address.scheme or not (
        parsed_address.host and parsed_address.host == other_parsed_address.host
    ):
        return False
    return parsed_address.scheme.partition("+")[0] == other_parsed_address.scheme.partition("+")[0]

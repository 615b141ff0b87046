"""The fence before devices: two engines with lock folders of their own on one database, one of them stopped or killed.

The device is a file that every write is appended to, with the token of the writer.
"""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from libraries import skip_without

skip_without("pydantic")
skip_without("sqlalchemy")

from testbed.errors import LeaseDenied, LeaseHeld, LeaseStale, UnderMaintenance
from testbed.leases.fence import hold_fence
from testbed.leases.store import LeaseStore, wait_until_no_sender
from testbed.storage.database import Database

pytestmark = [pytest.mark.process]

A, B = frozenset({"host:a"}), frozenset({"host:b"})

IN_SEND = ["before send 0", "after send 0", "before send 1", "after send 1"]
OUTSIDE = ["before check 0", "between 0", "before check 1"]


class Holder:
    """A process that holds a lease and stops itself at a boundary; `go_on` returns how it ended."""

    def __init__(self, address, tmp_path, lease, stop_at):
        self.reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            said = "died"
            try:
                os.environ["LIGHTBED_LOCK_DIR"] = str(tmp_path / f"locks-{os.getpid()}")
                said = self.hold(Database(address), tmp_path / "device", lease, stop_at)
            except BaseException as error:  # noqa: BLE001 - told to the test
                said = repr(error)
            finally:
                os.write(writing, said.encode())
                os._exit(0)
        os.close(writing)
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), os.read(self.reading, 1000)

    @staticmethod
    def hold(database, device, lease, stop_at):
        def boundary(name):
            if name == stop_at:
                os.kill(os.getpid(), signal.SIGSTOP)

        try:
            with hold_fence(database, "lab", A, requested_lease_id=lease) as fence:
                for step in range(2):
                    boundary(f"before check {step}")
                    with fence.guard_sending():
                        boundary(f"before send {step}")
                        with device.open("a") as wire:
                            wire.write(f"{fence.token}\n")
                        boundary(f"after send {step}")
                    boundary(f"between {step}")
        except LeaseDenied as error:
            return error.code
        return "done"

    def go_on(self):
        os.kill(self.pid, signal.SIGCONT)
        os.waitpid(self.pid, 0)
        self.pid = 0
        return os.read(self.reading, 1000).decode()

    def kill(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0


@pytest.fixture
def ours(database_address):
    database = Database(database_address)
    yield LeaseStore(database, "lab")
    database.close()


@pytest.fixture
def hold(ours, database_address, tmp_path):
    holders = []

    def start(stop_at):
        lease = ours.request(["host:a"], A)
        holders.append(Holder(database_address, tmp_path, lease.id, stop_at))
        return lease, holders[-1]

    yield start
    for holder in holders:
        holder.kill()
        os.close(holder.reading)


def write(store, device):
    """Write as the newest holder; return its token."""
    with hold_fence(store.database, "lab", A) as fence, fence.guard_sending():
        with device.open("a") as wire:
            wire.write(f"{fence.token}\n")
        return fence.token


def tokens(device):
    return [int(line) for line in device.read_text().split()] if device.exists() else []


@pytest.mark.parametrize("stop_at", OUTSIDE)
def test_a_holder_that_wakes_up_after_its_lease_was_broken_reaches_no_device(ours, hold, tmp_path, stop_at):
    device = tmp_path / "device"
    lease, holder = hold(stop_at)
    ours.break_lease(lease.id, "it is stopped")
    newest = write(ours, device)
    assert newest > lease.token
    assert holder.go_on() == "lease.stale"
    assert tokens(device) == sorted(tokens(device))
    assert tokens(device)[-1] == newest


@pytest.mark.long
@pytest.mark.parametrize("stop_at", IN_SEND)
def test_a_holder_that_is_stopped_while_it_sends_makes_everybody_wait(ours, hold, tmp_path, stop_at):
    device = tmp_path / "device"
    lease, holder = hold(stop_at)
    with pytest.raises(LeaseHeld, match=rf"process {holder.pid} on .* is sending .*kill -9"):
        ours.break_lease(lease.id, "it is stopped")
    with pytest.raises(LeaseDenied):
        write(ours, device)
    assert ours.request(["host:b"], B).state == "granted", "others are not in its way"
    assert holder.go_on() == "done"
    ours.release(lease.id)
    newest = write(ours, device)
    assert tokens(device) == [lease.token, lease.token, newest]


@pytest.mark.parametrize("stop_at", [IN_SEND[0], OUTSIDE[1]])
def test_the_death_of_a_holder_frees_its_lease(ours, hold, tmp_path, stop_at):
    lease, holder = hold(stop_at)
    holder.kill()
    ours.break_lease(lease.id, "it was killed")
    assert write(ours, tmp_path / "device") > lease.token


def test_maintenance_stops_all_motion_and_says_when_it_has_come_to_its_end(ours, hold, tmp_path):
    _, holder = hold("before send 0")
    ours.set_maintenance("hands in the rack")
    with pytest.raises(LeaseHeld, match=r"still changing: process \d+ .* Do not touch"):
        wait_until_no_sender(ours, 0)
    waiting = threading.Thread(target=lambda: wait_until_no_sender(ours, 60, lambda _s: time.sleep(0.01)))
    waiting.start()
    assert holder.go_on() == "maintenance", "the second step is refused"
    waiting.join(30)
    assert not waiting.is_alive()
    under_maintenance = pytest.raises(UnderMaintenance, match="hands in the rack")
    with under_maintenance, hold_fence(ours.database, "lab", B) as fence, fence.guard_sending():
        raise AssertionError
    assert ours.clear_maintenance()
    assert not ours.clear_maintenance()
    assert len(tokens(tmp_path / "device")) == 1


def test_threads_of_one_operation_send_at_the_same_time(ours):
    both = threading.Barrier(2, timeout=30)

    def send(fence):
        with fence.guard_sending():
            both.wait()

    with hold_fence(ours.database, "lab", A) as fence:
        threads = [threading.Thread(target=send, args=(fence,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert both.broken is False


def test_a_lease_that_is_gone_from_the_database_is_stale(ours):
    from testbed.storage.schema import lease_parts, leases

    with hold_fence(ours.database, "lab", A) as fence:
        with ours.database.open_transaction() as connection:
            connection.execute(lease_parts.delete())
            connection.execute(leases.delete())
        with pytest.raises(LeaseStale, match="is gone; nothing was sent"), fence.guard_sending():
            raise AssertionError

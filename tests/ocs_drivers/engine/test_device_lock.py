"""One writer at a time: threads wait, and what another process may see is in `test_visa_traps`."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from ocs_drivers.engine.device_lock import DeviceLock, find_lock_directory, make_lock_names, make_lock_path
from ocs_drivers.errors import SwitchHeld

ADDRESS = "polatis+scpi://10.0.0.2:5025"

TRY = f"""
from ocs_drivers.engine.device_lock import DeviceLock
from ocs_drivers.errors import SwitchHeld
try:
    with DeviceLock({ADDRESS!r}):
        print("got it")
except SwitchHeld as error:
    print(error.pid)
"""


def try_in_another_process() -> str:
    return subprocess.run(
        [sys.executable, "-c", TRY], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.process
def test_another_process_is_refused_until_the_outermost_release():
    import os

    with DeviceLock(ADDRESS):
        with DeviceLock(ADDRESS):
            assert try_in_another_process() == str(os.getpid())
        assert try_in_another_process() == str(os.getpid())
    assert try_in_another_process() == "got it"
    assert make_lock_path(ADDRESS).read_text() == ""


def test_names_are_taken_in_one_order_whoever_names_them():
    """Or two drivers of one device would each hold one of its names and wait for the other."""
    orders = [[lock.address for lock in DeviceLock(*names)._locks] for names in ("ab", "ba")]
    assert orders == [["a", "b"], ["a", "b"]]


def test_threads_of_one_process_take_turns():
    inside, most_inside, turns = 0, 0, []

    def work() -> None:
        nonlocal inside, most_inside
        for _ in range(50):
            with DeviceLock(ADDRESS):
                inside += 1
                most_inside = max(most_inside, inside)
                turns.append(1)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (most_inside, len(turns)) == (1, 200)


@pytest.mark.process
def test_devices_do_not_hold_each_other_up():
    assert make_lock_path(ADDRESS) != make_lock_path(ADDRESS.replace("5025", "5026"))
    with DeviceLock(ADDRESS), DeviceLock(ADDRESS.replace("5025", "5026")):
        assert try_in_another_process() != "got it"


def test_a_refused_lock_leaves_the_thread_free(tmp_path, monkeypatch):
    import fcntl

    holder = make_lock_path(ADDRESS).open("w")
    fcntl.flock(holder, fcntl.LOCK_EX)
    lock = DeviceLock(ADDRESS)
    for _ in range(2):
        with pytest.raises(SwitchHeld, match="another process") as caught, lock:
            pass
        assert caught.value.pid is None  # the holder left no number
    holder.close()
    with lock:
        assert make_lock_path(ADDRESS).read_text().strip().isdecimal()


def test_the_directory_is_for_every_user(tmp_path, monkeypatch):
    monkeypatch.setenv("LIGHTBED_LOCK_DIR", str(tmp_path / "deep" / "locks"))
    assert find_lock_directory().stat().st_mode & 0o7777 == 0o1777


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("polatis+scpi://localhost:5025",), ("polatis+scpi://127.0.0.1:5025?poll_s=1",)),
        (("polatis+scpi://127.0.0.1", "Polatis", "7"), ("polatis+tl1://localhost:3082", "Polatis", "7")),
    ],
)
def test_one_device_by_two_addresses_shares_a_lock(one, other):
    assert set(make_lock_names(*one)) & set(make_lock_names(*other))


def test_devices_at_different_places_share_none():
    names = [make_lock_names(f"polatis+scpi://10.0.0.{n}", "Polatis", "7") for n in (1, 2)]
    assert not set(names[0]) & set(names[1])


def test_a_link_to_a_serial_line_or_file_is_the_line_or_file(tmp_path, monkeypatch):
    (tmp_path / "panel.json").touch()
    (tmp_path / "link.json").symlink_to("panel.json")
    monkeypatch.chdir(tmp_path)
    assert make_lock_names("manual://link.json") == make_lock_names(f"manual://{tmp_path}/panel.json")


def test_whoever_shares_one_name_waits_for_the_lock():
    order = []
    taken, may_end = threading.Event(), threading.Event()

    def first() -> None:
        with DeviceLock("b", "a"):
            taken.set()
            may_end.wait(60)
            order.append("first")

    def second() -> None:
        with DeviceLock("c", "b"):
            order.append("second")

    threads = [threading.Thread(target=work) for work in (first, second)]
    threads[0].start()
    assert taken.wait(60)
    threads[1].start()
    may_end.set()
    for thread in threads:
        thread.join(60)
    assert order == ["first", "second"]


def test_a_name_that_is_held_elsewhere_leaves_the_others_free(tmp_path):
    import fcntl

    with make_lock_path("b").open("w") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(SwitchHeld), DeviceLock("a", "b"):
            pass
        with DeviceLock("a"):
            pass

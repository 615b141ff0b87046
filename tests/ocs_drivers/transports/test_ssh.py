"""The SSH transport against an SSH server of this process: every way to get in, and every way to be kept out."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from libraries import library
from needs import needs

asyncssh = library("asyncssh")
shouting_server = library("shouting_server")

from ocs_drivers.address import parse_address
from ocs_drivers.credentials import Credentials
from ocs_drivers.errors import (
    AddressError,
    AnotherDevice,
    ConnectError,
    ConnectionLost,
    LoginFailed,
    Timeout,
    Unsupported,
)
from ocs_drivers.timing import Deadline
from ocs_drivers.transports.lines import make_ssh_line
from ocs_drivers.transports.ssh import SshTransport
from sim.twins.wire.listener import bind_socket

ACCOUNT = Credentials("admin", "root")


class Device:
    """An SSH server in a thread."""

    def __init__(self) -> None:
        self.connections, self.passwords, self.terminals, self.keys = [], [], [], set()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.port = 0
        self.start()

    def start(self) -> None:
        """Start with a host key of its own; again on the same port."""
        self.host_key = asyncssh.generate_private_key("ssh-ed25519")
        self.server = self.run(self._listen())
        self.port = self.server.sockets[0].getsockname()[1]

    async def _listen(self):
        return await asyncssh.create_server(
            lambda: shouting_server.Account(self),
            sock=bind_socket("127.0.0.1", self.port),
            server_host_keys=[self.host_key],
            encoding=None,
            line_editor=False,
        )

    def stop(self) -> None:
        async def down():
            # A connection that `Server.close` finds half accepted is never closed by asyncio (3.11): accept no more,
            # and let those in the making become connections, before closing.
            for listening in self.server.sockets:
                self.loop.remove_reader(listening.fileno())
            await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)
            self.server.close()
            for connection in self.connections:
                connection.abort()
                await connection.wait_closed()
            await self.server.wait_closed()

        self.run(down())

    def close(self) -> None:
        self.stop()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(60)
        self.loop.close()

    def run(self, doing):
        return asyncio.run_coroutine_threadsafe(doing, self.loop).result(10)

    def transport(self, credentials=ACCOUNT, **options):
        return SshTransport("127.0.0.1", self.port, device="cli://ocs", credentials=credentials, **options)


@pytest.fixture
@needs("socket")
def device(tmp_path, monkeypatch) -> Iterator[Device]:
    monkeypatch.setenv("HOME", str(tmp_path))
    one = Device()
    yield one
    one.close()


def read(transport, wanted: bytes) -> bytes:
    """Return what comes up to and with `wanted`."""
    got = b""
    while wanted not in got:
        got += transport.receive(Deadline(10))
    return got


def test_a_shell_with_a_wide_terminal(device):
    ours = device.transport()
    assert not ours.is_open
    ours.open(10)
    assert read(ours, b"ready> ") == b"ready> "
    ours.send(b"show\r", Deadline(10))
    assert read(ours, b"SHOW\r") == b"SHOW\r"
    assert not ours.has_input()
    assert device.terminals == [("vt100", (1000, 1000))]
    ours.close()
    assert not ours.is_open


def test_silence_is_a_timeout(device):
    ours = device.transport()
    ours.open(10)
    read(ours, b"ready> ")
    with pytest.raises(Timeout):
        ours.receive(Deadline(0.01))
    ours.close()


def test_a_disconnect_gives_what_came_before(device):
    ours = device.transport()
    ours.open(10)
    read(ours, b"ready> ")
    ours.send(b"bye\r", Deadline(10))
    assert read(ours, b"goodbye") == b"goodbye"
    with pytest.raises(ConnectionLost):
        ours.receive(Deadline(10))
    assert ours.has_input()
    with pytest.raises(ConnectionLost):
        ours.send(b"show\r", Deadline(10))
    ours.close()


def test_a_broken_connection_is_lost(device):
    ours = device.transport()
    ours.open(10)
    read(ours, b"ready> ")
    device.loop.call_soon_threadsafe(device.connections[0].abort)
    with pytest.raises(ConnectionLost):
        ours.receive(Deadline(10))
    ours.close()
    ours.open(10)
    assert read(ours, b"ready> ") == b"ready> "
    ours.close()


def test_a_wrong_password(device):
    ours = device.transport(Credentials("admin", "guess"))
    with pytest.raises(LoginFailed, match="'admin'") as caught:
        ours.open(10)
    assert "guess" not in str(caught.value)
    assert not ours.is_open


def test_nobody_there(device):
    device.stop()
    with pytest.raises(ConnectError):
        device.transport().open(10)


@pytest.mark.socket
def test_somebody_who_says_nothing():
    with bind_socket("127.0.0.1", 0) as silent:
        silent.listen()
        mute = SshTransport(*silent.getsockname(), device="cli://ocs", credentials=ACCOUNT)
        with pytest.raises(ConnectError, match=r"0\.05 s"):
            mute.open(0.05)


def test_a_key_goes_before_the_password(device, tmp_path):
    key = asyncssh.generate_private_key("ssh-ed25519")
    device.keys.add(key.public_data)
    (tmp_path / "key").write_bytes(key.export_private_key())
    address = parse_address(f"telescent+cli://127.0.0.1:{device.port}?key={tmp_path / 'key'}")
    ours = make_ssh_line(address, 22, Credentials("admin", "not needed"))
    ours.open(10)
    assert read(ours, b"ready> ") == b"ready> "
    assert device.passwords == []
    ours.close()


@pytest.mark.parametrize("content", [None, b"no key"])
def test_a_key_that_cannot_be_read(device, tmp_path, content):
    if content:
        (tmp_path / "key").write_bytes(content)
    with pytest.raises(AddressError, match="cannot be read"):
        device.transport(key_file=str(tmp_path / "key")).open(10)


class TestHostKeys:
    def line(self, device, key=None):
        shown = (key or device.host_key).export_public_key().decode().split(" ")[:2]
        return f"[127.0.0.1]:{device.port} {' '.join(shown)}".strip() + "\n"

    def test_the_first_seen_is_trusted_with_a_warning(self, device, caplog):
        ours = device.transport()
        for _ in range(2):
            ours.open(10)
            ours.close()
        warnings = [record.message for record in caplog.records if record.name == "ocs_drivers.ssh"]
        assert len(warnings) == 1
        assert device.host_key.get_fingerprint() in warnings[0]

    def test_another_at_a_later_connection_gets_no_password(self, device):
        ours = device.transport()
        ours.open(10)
        ours.close()
        device.stop()
        device.start()
        before = len(device.passwords)
        with pytest.raises(AnotherDevice, match="host key is now"):
            ours.open(10)
        assert len(device.passwords) == before

    @pytest.mark.parametrize("right", [True, False])
    def test_a_file_of_the_address_decides_alone(self, device, tmp_path, caplog, right):
        wrong = asyncssh.generate_private_key("ssh-ed25519")
        (tmp_path / "hosts").write_text(self.line(device, None if right else wrong))
        ours = device.transport(known_hosts=str(tmp_path / "hosts"))
        if right:
            ours.open(10)
            ours.close()
        else:
            with pytest.raises(ConnectError, match="the host key of the device is not the known one"):
                ours.open(10)
            assert device.passwords == []
        assert not [record for record in caplog.records if record.name == "ocs_drivers.ssh"]

    def test_the_users_file_decides_about_hosts_it_has(self, device, tmp_path):
        (tmp_path / ".ssh").mkdir()
        users = tmp_path / ".ssh" / "known_hosts"
        users.write_text(self.line(device, asyncssh.generate_private_key("ssh-ed25519")))
        with pytest.raises(ConnectError, match="the host key of the device is not the known one"):
            device.transport().open(10)
        users.write_text(self.line(device).replace("127.0.0.1", "192.0.2.1"))
        ours = device.transport()
        ours.open(10)
        ours.close()

    def test_a_file_that_is_not_there(self, device, tmp_path):
        with pytest.raises(AddressError, match="cannot be read"):
            device.transport(known_hosts=str(tmp_path / "none")).open(10)


def test_many_transports_share_one_thread_and_leave_nothing(device):
    first = device.transport()
    first.open(10)
    first.close()
    threads = threading.active_count()
    for _ in range(5):
        ours = device.transport()
        ours.open(10)
        ours.close()
    assert threading.active_count() == threads


def test_without_asyncssh_there_is_a_hint(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "asyncssh", None)
    with pytest.raises(Unsupported, match=r"the extra \[ssh\] of lightbed"):
        SshTransport("ocs", 22, device="cli://ocs", credentials=ACCOUNT)

"""A simulated command line, typed at in memory, over telnet and over SSH by a client that is not ours."""

from __future__ import annotations

import asyncio

import pytest

from sim.models.clock import VirtualClock
from sim.twins.frontends.cli import CliFaults, CliFrontend, CliStyle
from sim.twins.frontends.telnet import DO, DONT, ECHO, GREETING, IAC, SB, SE, WILL, WONT, make_telnet_server
from sim.twins.wire.line import Line, LineFaults, Transcript
from sim.twins.wire.listener import bind_socket
from sim.twins.wire.memory import MemoryListener


class Device:
    """A command line that counts, on a virtual clock; `run` lets everything happen that needs no time."""

    def __init__(self, style: CliStyle, *, idle_timeout_s: float | None = None, telnet: bool = False) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = VirtualClock()
        self.line_faults = LineFaults()
        self.faults = CliFaults(self.line_faults)
        table = {
            r"count (\d+)": lambda typed: "\n".join(f"row {row}" for row in range(int(typed.match[1]))),
            r"wait (\d+)": self.wait,
            r"who": lambda typed: f"{typed.user} on {typed.frontend}",
        }
        self.frontend = CliFrontend(
            table, style, clock=self.clock, faults=self.faults, idle_timeout_s=idle_timeout_s, name="test"
        )
        self.serve_line = make_telnet_server(self.frontend) if telnet else self.frontend.serve
        self.listener = MemoryListener(self.serve)
        self.run(self._open())

    async def _open(self):
        self.listener.open()

    async def wait(self, typed):
        await self.clock.sleep(float(typed.match[1]))
        return "waited"

    async def serve(self, reader, writer):
        line = Line(
            "test",
            1,
            (reader, writer),
            faults=self.line_faults,
            transcript=Transcript(self.clock),
            clock=self.clock,
        )
        await self.serve_line(line)

    def run(self, doing=None, seconds: float = 0.0):
        result = self.loop.run_until_complete(doing) if doing else None
        self.loop.run_until_complete(self.clock.advance(seconds))
        return result

    def attach(self):
        async def attached():
            return self.listener.attach()

        return self.run(attached())

    def screen(self, client, typed: bytes = b"", seconds: float = 0.0) -> str:
        if typed:
            client.send(typed)
        self.run(seconds=seconds)
        return client.receive().decode("latin-1")

    def close(self):
        self.run(self.listener.close())
        self.loop.close()


@pytest.fixture
def device():
    made = []

    def make(style=None, **options):
        made.append(Device(style or CliStyle("ocs> "), **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_greeting_prompt_echo_reply_prompt(device):
    ocs = device(CliStyle("ocs> ", greeting="Welcome"))
    client = ocs.attach()
    assert ocs.screen(client) == "Welcome\r\nocs> "
    assert ocs.screen(client, b"count 2\r") == "count 2\r\nrow 0\r\nrow 1\r\nocs> "
    assert ocs.screen(client, b"\r\n") == "\r\nocs> "
    assert ocs.screen(client, b"dance\r\n") == "dance\r\nunknown command\r\nocs> "
    assert ocs.screen(client, b"who\r\x00") == "who\r\nadmin on test\r\nocs> "


def test_any_split_of_the_typing(device):
    ocs = device()
    client = ocs.attach()
    ocs.screen(client)
    assert (
        "".join(ocs.screen(client, bytes([byte])) for byte in b"count 1\r\n") == "count 1\r\nrow 0\r\nocs> "
    )


def test_two_commands_at_once_are_done_in_turn(device):
    ocs = device()
    client = ocs.attach()
    ocs.screen(client)
    assert ocs.screen(client, b"count 1\rwho\r").endswith("row 0\r\nocs> admin on test\r\nocs> ")


def test_a_backspace_takes_back_and_ctrl_c_drops_the_line(device):
    ocs = device()
    client = ocs.attach()
    ocs.screen(client)
    assert ocs.screen(client, b"whX\x7fo\r") == "whX\b \bo\r\nadmin on test\r\nocs> "
    assert ocs.screen(client, b"who\x03") == "who^C\r\nocs> "


def test_no_echo_and_colour(device):
    ocs = device(CliStyle("ocs> ", echoes_input=False, has_colour=True))
    client = ocs.attach()
    assert ocs.screen(client) == "\x1b[1;34mocs> \x1b[0m"
    assert ocs.screen(client, b"count 1\r") == "row 0\r\n\x1b[1;34mocs> \x1b[0m"


def test_pages_are_turned_by_a_key_and_left_by_q(device):
    ocs = device(CliStyle("ocs> ", page_rows=2))
    client = ocs.attach()
    ocs.screen(client)
    wipe = "\b" * 8 + " " * 8 + "\b" * 8
    assert ocs.screen(client, b"count 5\r") == "count 5\r\nrow 0\r\nrow 1\r\n--More--"
    assert ocs.screen(client, b" ") == f"{wipe}row 2\r\nrow 3\r\n--More--"
    assert ocs.screen(client, b" ") == f"{wipe}row 4\r\nocs> "
    ocs.screen(client, b"count 5\r")
    assert ocs.screen(client, b"q") == f"{wipe}ocs> "


@pytest.mark.parametrize("word", [b"exit", b"quit", b"logout"])
def test_leaving(device, word):
    ocs = device()
    client = ocs.attach()
    ocs.screen(client, word + b"\r")
    assert client.is_closed


def test_what_is_announced_goes_to_every_session(device):
    ocs = device()
    clients = [ocs.attach() for _ in range(2)]
    for client in clients:
        ocs.screen(client)
    ocs.frontend.announce("12:00 MOVING", "12:01 DONE")
    assert [ocs.screen(client) for client in clients] == ["12:00 MOVING\r\n12:01 DONE\r\n"] * 2


def test_an_idle_session_ends_and_a_working_one_does_not(device):
    ocs = device(idle_timeout_s=180)
    idle, busy = ocs.attach(), ocs.attach()
    ocs.screen(idle, b"who\r", seconds=100)
    ocs.screen(busy, b"wait 500\r", seconds=79)
    assert not idle.is_closed
    ocs.run(seconds=2)
    assert (idle.is_closed, busy.is_closed) == (True, False)
    assert ocs.screen(busy, seconds=420).endswith("waited\r\nocs> ")
    assert not busy.is_closed
    ocs.run(seconds=181)
    assert busy.is_closed


def test_typing_keeps_a_session_alive(device):
    ocs = device(idle_timeout_s=180)
    client = ocs.attach()
    for _ in range(5):
        ocs.screen(client, b"who\r", seconds=170)
    assert not client.is_closed


def test_expired_sessions_are_ended(device):
    ocs = device()
    clients = [ocs.attach() for _ in range(3)]
    ocs.run()
    assert (ocs.frontend.session_count, ocs.frontend.expire_sessions()) == (3, 3)
    ocs.run()
    assert [client.is_closed for client in clients] == [True] * 3
    assert ocs.frontend.session_count == 0


class TestFaults:
    @pytest.fixture
    def ocs(self, device):
        return device(CliStyle("ocs> ", noise_line="12:00 NOISE"))

    @pytest.fixture
    def client(self, ocs):
        client = ocs.attach()
        ocs.screen(client)
        return client

    def test_a_truncated_table_ends_within_a_row(self, ocs, client):
        ocs.faults.truncated_tables = 1
        assert ocs.screen(client, b"count 5\r") == "count 5\r\nrow 0\r\nrow 1\r\nro\r\nocs> "
        assert ocs.screen(client, b"count 3\r") == "count 3\r\nrow 0\r\nrow 1\r\nrow 2\r\nocs> "
        assert ocs.line_faults.fire_counts["truncate_table"] == 1

    def test_noise_comes_within_a_table(self, ocs, client):
        ocs.faults.noisy_tables = 1
        assert "row 1\r\n12:00 NOISE\r\nrow 2" in ocs.screen(client, b"count 3\r")
        assert ocs.line_faults.fire_counts["noise"] == 1

    def test_short_replies_are_no_tables(self, ocs, client):
        ocs.faults.truncated_tables = ocs.faults.noisy_tables = 1
        assert ocs.screen(client, b"count 2\r") == "count 2\r\nrow 0\r\nrow 1\r\nocs> "

    def test_garbage_leaves_the_prompt(self, ocs, client):
        ocs.line_faults.garbage_replies = 1
        garbage = ocs.screen(client, b"count 3\r")
        assert "row" not in garbage
        assert garbage.endswith("\r\nocs> ")

    @pytest.mark.parametrize("executes", [True, False])
    def test_a_line_that_closes_within_a_command(self, ocs, client, executes):
        ocs.line_faults.close_after_commands, ocs.line_faults.close_executes = 1, executes
        ocs.screen(client, b"count 3\r")
        assert client.is_closed


class TestTelnet:
    @pytest.fixture
    def ocs(self, device):
        return device(CliStyle("ocs> ", account=("admin", "root")), telnet=True)

    @pytest.fixture
    def client(self, ocs):
        client = ocs.attach()
        assert ocs.screen(client) == GREETING.decode("latin-1") + "login: "
        return client

    def login(self, ocs, client, password=b"root"):
        assert ocs.screen(client, b"admin\r\n") == "admin\r\nPassword: "
        return ocs.screen(client, password + b"\r\n")

    def test_login_shows_no_password(self, ocs, client):
        assert self.login(ocs, client) == "\r\nocs> "
        assert ocs.screen(client, b"who\r\n") == "who\r\nadmin on test\r\nocs> "

    def test_three_wrong_passwords_end_it(self, ocs, client):
        for _ in range(2):
            assert self.login(ocs, client, b"guess") == "\r\nLogin incorrect\r\nlogin: "
        self.login(ocs, client, b"guess")
        assert client.is_closed

    def test_options_are_no_typing_however_split(self, ocs, client):
        answers = bytes([IAC, DO, ECHO, IAC, WILL, 24, IAC, WONT, 31, IAC, SB, 24, 0, 65, IAC, SE])
        assert [ocs.screen(client, bytes([byte])) for byte in answers] == [""] * len(answers)
        assert self.login(ocs, client) == "\r\nocs> "

    def test_a_client_may_echo_by_itself(self, ocs, client):
        assert ocs.screen(client, bytes([IAC, DONT, ECHO])) == bytes([IAC, WONT, ECHO]).decode("latin-1")
        assert ocs.screen(client, b"admin\r\n") == "Password: "

    def test_other_wishes_are_refused(self, ocs, client):
        said = ocs.screen(client, bytes([IAC, DO, 5, IAC, WILL, 6]))
        assert said == bytes([IAC, WONT, 5, IAC, DONT, 6]).decode("latin-1")

    def test_announcements_are_for_those_who_are_logged_in(self, ocs, client):
        ocs.frontend.announce("12:00 MOVING")
        assert ocs.screen(client) == ""


@pytest.mark.socket
class TestSsh:
    """Over a real socket, by asyncssh's own client."""

    @pytest.fixture(autouse=True)
    def _asyncssh(self):
        self.asyncssh = pytest.importorskip("asyncssh")

    def session(self, talk, *, account=("admin", "root")):
        """Run `talk(server, connect)` with a server of a command line that counts."""
        from sim.models.clock import RealClock
        from sim.twins.wire.ssh_server import SshServer

        clock, faults = RealClock(), LineFaults()
        frontend = CliFrontend(
            {r"count (\d+)": lambda typed: "\n".join("row" for _ in range(int(typed.match[1])))},
            CliStyle("ocs> "),
            clock=clock,
            faults=CliFaults(faults),
        )

        async def serve(reader, writer):
            line = Line("ssh", 1, (reader, writer), faults=faults, transcript=Transcript(clock), clock=clock)
            await frontend.serve(line)

        async def run():
            server = SshServer(bind_socket("127.0.0.1", 0), account, serve)
            server.open()
            host, port = server.address.split(":")

            def connect(password="root"):
                return self.asyncssh.connect(
                    host,
                    int(port),
                    username="admin",
                    password=password,
                    known_hosts=None,
                    config=None,
                    client_keys=None,
                )

            try:
                async with asyncio.timeout(10):
                    return await talk(server, connect)
            finally:
                await server.close()

        return asyncio.run(run())

    def test_a_shell_echoes_once_and_answers(self):
        async def talk(server, connect):
            async with connect() as connection:
                process = await connection.create_process(term_type="vt100")
                seen = await process.stdout.readuntil("ocs> ")
                process.stdin.write("count 2\r")
                seen += await process.stdout.readuntil("ocs> ")
                process.stdin.write("exit\r")
                return seen + await process.stdout.read(), server.client_count

        seen, clients = self.session(talk)
        assert seen == "ocs> count 2\r\nrow\r\nrow\r\nocs> exit\r\n"
        assert clients == 1

    def test_a_wrong_password_is_refused(self):
        async def talk(server, connect):
            with pytest.raises(self.asyncssh.PermissionDenied):
                await connect("guess")
            return server.client_count

        assert self.session(talk) == 0

    def test_clients_can_be_refused_dropped_and_let_in_again(self):
        async def talk(server, connect):
            first = await connect()
            process = await first.create_process(term_type="vt100")
            await process.stdout.readuntil("ocs> ")
            await server.refuse()
            assert not server.is_open
            with pytest.raises(ConnectionRefusedError):
                await connect()
            dropped = server.drop_clients()
            await first.wait_closed()
            server.open()
            async with connect() as again:
                process = await again.create_process(term_type="vt100")
                return dropped, await process.stdout.readuntil("ocs> ")

        assert self.session(talk) == (1, "ocs> ")

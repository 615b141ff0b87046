"""Commands that no device should see: exit code, one JSON document, no traceback, and the device as it was."""

from __future__ import annotations

import json
import socket
import threading

import pytest
from libraries import skip_without
from needs import needs
from schemes import BANKS, SCHEMES

from testbed.cli.app import run_app

skip_without("pyvisa_py")
skip_without("asyncssh")
skip_without("h11")

MOVES = {"connect", "disconnect", "apply", "shutter", "home"}
TCP = [scheme for scheme in SCHEMES if not scheme.endswith("serial") and scheme != "manual"]

QUERY = dict.fromkeys(BANKS, "?banks=2&channels=4") | {
    "scpi-1xn": "?channels=8&set=:SWITch%20{channel}&query=:SWITch?"
}
"""Options without which an address is none."""

UNKNOWN, BAD_PAIR, USAGE, ADDRESS = "ocs.port.unknown", "ocs.port", "usage", "ocs.address"
DIGITS = "9" * 5000
ODD_PORTS = {
    "5,000 digits": DIGITS,
    "full-width digit": "\uff11",
    "Arabic digit": "\u0661",
    "superscript": "\u00b2",
    "NUL": "\0",
    "a port and NUL": "1\0",
    "é": "é",
    "a name é": "=é",
    "half a character": "\udcff",
    "an escape": "\x1b[31m",
    "an emoji": "\U0001f389",
    "nothing": "",
    "a blank": " ",
    "only =": "=",
    "a fraction": "1.5",
    "an exponent": "1e0",
    "hexadecimal": "0x1",
    "a sign": "+1",
    "an underscore": "1_0",
    "no such port": "999999999",
}
COMMANDS: dict[str, tuple[tuple[str, ...], str]] = {
    **{f"connect from {name}": (("connect", f"{port}:<out>"), UNKNOWN) for name, port in ODD_PORTS.items()},
    **{f"connect to {name}": (("connect", f"<in>:{port}"), UNKNOWN) for name, port in ODD_PORTS.items()},
    **{f"disconnect {name}": (("disconnect", port), UNKNOWN) for name, port in ODD_PORTS.items()},
    **{f"power of {name}": (("power", port), UNKNOWN) for name, port in ODD_PORTS.items()},
    **{
        f"scope {name}": (("apply", "<in>:<out>", "--scope", port), UNKNOWN)
        for name, port in ODD_PORTS.items()
    },
    "no colon": (("connect", "1"), BAD_PAIR),
    "two colons": (("connect", "<in>:<out>:3"), UNKNOWN),
    "only a colon": (("connect", ":"), UNKNOWN),
    "5,000 digits without a colon": (("connect", DIGITS), BAD_PAIR),
    "an input twice": (("connect", "<in>:<out>", "<in>:<out>"), BAD_PAIR),
    "no pair": (("connect",), USAGE),
    "no input": (("disconnect",), USAGE),
    "drops a circuit": (("connect", "<held>:<out>"), "ocs.port.busy"),
    "apply with nothing": (("apply",), USAGE),
    "apply with an empty file": (("apply", "--file", "EMPTY"), USAGE),
    "apply with nothing in a scope": (("apply", "--scope", "1"), USAGE),
    "empty and a pair": (("apply", "<in>:<out>", "--empty"), USAGE),
    "a file that is missing": (("apply", "--file", "MISSING"), USAGE),
    "a file that is no text": (("apply", "--file", "BINARY"), BAD_PAIR),
    "a folder as file": (("apply", "--file", "."), USAGE),
    "a stale revision": (("apply", "<in>:<out>", "--expect", "0"), "ocs.conflict"),
    "a timeout that is none": (("read", "--timeout", "nan"), USAGE),
    "a timeout without end": (("read", "--timeout", "inf"), USAGE),
    "a timeout of nothing": (("read", "--timeout", "0"), USAGE),
    "a timeout in words": (("read", "--timeout", "soon"), USAGE),
    "an answer without end": (("read", "--timeout-each", "inf"), USAGE),
    "a pause that is none": (("watch", "--every", "nan"), USAGE),
    "a shutter ajar": (("shutter", "ajar", "1"), USAGE),
    "a recording that exists": (("read", "--record", "EMPTY"), USAGE),
    "a recording nowhere": (("read", "--record", "no/such/folder/x"), USAGE),
    "a recording with NUL": (("read", "--record", "a\0b"), USAGE),
    "no such command": (("dance",), USAGE),
    "no such option": (("read", "--dance"), USAGE),
    "no command": ((), USAGE),
}
ADDRESSES = {
    "5,000 digits": "SCHEME://h:" + DIGITS,
    "full-width port": "SCHEME://h:\uff11",
    "port 0": "SCHEME://h:0",
    "port 65536": "SCHEME://h:65536",
    "NUL": "SCHEME://h\0:1",
    "a line end": "SCHEME://h\n:1",
    "an empty label": "SCHEME://a..b",
    "a long label": f"SCHEME://{'a' * 64}.example",
    "a long label with é": f"SCHEME://{'é' * 64}.example",
    "no host": "SCHEME://",
    "a path": "SCHEME://h/p",
    "an unknown option": "SCHEME://h?dance=1",
    "an unknown scheme": "é+tl1://h",
    "no scheme": "h:1",
    "nothing": "",
    "VISA with 5,000 digits": f"TCPIP::h::{DIGITS}::SOCKET",
    "VISA with full-width digits": "TCPIP::h::\uff11::SOCKET",
}


class Ran:
    """One finished command: exit code, standard error, and the one document on standard output."""

    def __init__(self, code, out, err) -> None:
        self.code, self.err = code, err
        (line,) = out.splitlines()
        self.error = json.loads(line).get("error") or {"code": f"exit code {code}", "message": ""}

    def __str__(self) -> str:
        return f"{self.code} {self.error['code']}: {self.error['message'][:300]} {self.err[:300]}"

    def is_refusal(self, *codes: str) -> bool:
        """Return True for an error with one of these codes that a person can read."""
        return self.code == 1 and self.error["code"] in codes and 10 < len(self.error["message"]) < 1000


@pytest.fixture
def ask(tmp_path, monkeypatch, capsys):
    """Run `testbed` in this process, in a folder with a file of nothing and one that is no text."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "EMPTY").write_text("# nothing\n")
    (tmp_path / "BINARY").write_bytes(b"1:9 \xff\xfe\n")

    def run(*words):
        code = run_app([*words, "--json"])
        return Ran(code, *capsys.readouterr())

    return run


@pytest.fixture
def ask_in_memory(open_in_memory, world, ask):
    """Return a twin in memory for a scheme, its circuits as the driver reads them, and a way to run commands on it."""

    def use(scheme):
        family, front = SCHEMES[scheme]
        twin = world(family, size=(2, 8) if scheme in BANKS else (8, 8))
        switch = open_in_memory(twin, scheme, front, **twin.twin.frontends[front].options)
        if scheme not in BANKS and family != "manual":
            twin.do("operator", connect=[[2, 10]])
        held = switch.read().connections
        words = {"<in>": "1", "<held>": "2", "<out>": "5" if scheme in BANKS else "16"}
        switch.close()

        def run(*command):
            for mark, word in words.items():
                command = tuple(each.replace(mark, word) for each in command)
            consent = ("--yes",) if command[:1] and command[0] in MOVES else ()
            return ask("switch", switch.address, *command, *consent)

        return twin, run, held

    return use


SOME = ("polatis+tl1",)
"""What is refused is the same for all, and so is who refuses it; banks have addresses of their own."""


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SOME)
def test_odd_commands_are_refused_and_nothing_moves(ask_in_memory, scheme):
    check_odd_commands(ask_in_memory, scheme)


@pytest.mark.long
@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme not in SOME])
def test_odd_commands_are_refused_by_every_other_driver_too(ask_in_memory, scheme):
    check_odd_commands(ask_in_memory, scheme)


def check_odd_commands(ask_in_memory, scheme):
    twin, run, held = ask_in_memory(scheme)
    truth = twin.truth()
    wrong = {}
    for name, (words, code) in COMMANDS.items():
        if words[1:] == ("<held>:<out>",) and 2 not in held:
            continue  # a panel that is patched by hand knows only what it was told
        ran = run(*words)
        if not ran.is_refusal(code):
            wrong[name] = str(ran)

    assert wrong == {}
    assert twin.truth() == truth


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [*SOME, "scpi-1xn", "manual"])
def test_odd_addresses_are_refused(ask, scheme):
    check_odd_addresses(ask, scheme)


@pytest.mark.long
@pytest.mark.parametrize(
    "scheme", [scheme for scheme in SCHEMES if scheme not in (*SOME, "scpi-1xn", "manual")]
)
def test_odd_addresses_are_refused_by_every_other_driver_too(ask, scheme):
    check_odd_addresses(ask, scheme)


def check_odd_addresses(ask, scheme):
    is_file = scheme == "manual" or scheme.endswith("serial")  # what follows the scheme
    codes = (ADDRESS, USAGE, *(("ocs.transport.connect", "internal") if is_file else ()))
    wrong = {}
    for name, address in ADDRESSES.items():
        ran = ask("switch", address.replace("SCHEME", scheme), "read")
        if not ran.is_refusal(*codes):
            wrong[name] = str(ran)

    assert wrong == {}


@pytest.fixture
@needs("socket")
def answering():
    """Make a server that says something and closes the connection, or takes it and says nothing; give its port."""
    servers = []

    def serve(says: bytes | None) -> int:
        server = socket.create_server(("127.0.0.1", 0), backlog=64)
        servers.append(server)
        if says is not None:

            def greet() -> None:
                while True:
                    try:
                        client, _ = server.accept()
                    except OSError:
                        return
                    with client:
                        client.sendall(says)

            threading.Thread(target=greet, daemon=True).start()
        return server.getsockname()[1]

    yield serve
    for server in servers:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def address_of(scheme: str, port: int) -> str:
    return f"{scheme}://127.0.0.1:{port}{QUERY.get(scheme, '')}"


@pytest.mark.long
@pytest.mark.parametrize("scheme", TCP)
@pytest.mark.parametrize("says", [None, b"220 ftp ready\r\n"], ids=["silence", "a greeting and the end"])
def test_a_port_of_something_else_says_check_the_port(ask, answering, scheme, says):
    ran = ask("switch", address_of(scheme, answering(says)), "read", "--timeout-each", "0.3")

    kinds = ("connect", "timeout", "desync", "lost")
    assert ran.is_refusal(*(f"ocs.transport.{kind}" for kind in kinds)), str(ran)
    assert "check the port" in ran.error["message"].lower()


@pytest.mark.parametrize("scheme", TCP)
def test_a_device_that_has_no_session_left_says_what_to_do(ask, answering, scheme):
    ran = ask("switch", address_of(scheme, answering(b"")), "read", "--timeout-each", "0.3")

    assert ran.is_refusal("ocs.transport.connect"), str(ran)
    assert "no free session" in ran.error["message"]


@pytest.mark.long
@pytest.mark.parametrize("scheme", TCP)
def test_the_timeout_bounds_the_whole_command(ask, answering, scheme):
    ran = ask("switch", address_of(scheme, answering(None)), "read", "--timeout", "0.5")

    assert ran.is_refusal("timed_out"), str(ran)
    assert ran.error["who"] == "device"
    assert "--timeout" in ran.error["message"]

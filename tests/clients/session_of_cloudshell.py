"""A session of cloudshell-cli, driven by lines of JSON. Runs without lightbed, in `.venv-clients` and on Python 2.7.

The first line opens the session: `kind` (ssh, telnet, tl1, tcp), `host`, `port`, `user`, `password`, `prompt`.
Each line after it is a command, or a command and what it waits for in place of the prompt; the answer is what the
session gives back, or its error.
"""

import json
import logging
import sys
import warnings

from cloudshell.cli.session.tcp_session import TCPSession
from cloudshell.cli.session.tl1_session import TL1Session

warnings.simplefilter("ignore")  # telnetlib, and cryptography on Python 2.7

from cloudshell.cli.session.ssh_session import SSHSession
from cloudshell.cli.session.telnet_session import TelnetSession

LOGGER = logging.getLogger("cloudshell")
LOGGER.addHandler(logging.NullHandler())
WAITS = {"clear_buffer_timeout": 0.02, "timeout": 30}


class Bytes:
    """Sockets take bytes, and the sessions of 6.0.0 hand them text: they ran on Python 2 last."""

    def _send(self, command, logger):
        self._handler.sendall(command.encode())

    def _read_str_data(self):
        return self._handler.recv(self._buffer_size).decode()


class Tcp(Bytes, TCPSession):
    """Commands and answers with nothing in between."""


class Tl1(Bytes, TL1Session):
    """With a login, names and correlation tags."""


SESSIONS = {"ssh": SSHSession, "telnet": TelnetSession, "tcp": TCPSession, "tl1": TL1Session}
if str is not bytes:
    SESSIONS.update(tcp=Tcp, tl1=Tl1)


def session_of(wanted):
    where = wanted["host"], wanted["port"]
    who = wanted["user"], wanted["password"]
    session = SESSIONS[wanted["kind"]]
    if wanted["kind"] == "tcp":
        return session(*where, **WAITS)
    return session(where[0], who[0], who[1], where[1], **WAITS)


def native(value):
    """Return a value of JSON with the texts of this Python: telnetlib of Python 2.7 takes no unicode."""
    if isinstance(value, dict):
        return {native(key): native(each) for key, each in value.items()}
    if isinstance(value, list):
        return [native(each) for each in value]
    return value if isinstance(value, (int, str)) else value.encode()


def read(line):
    return native(json.loads(line))


def say(answer):
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main():
    wanted = read(sys.stdin.readline())
    session = session_of(wanted)
    try:
        session.connect(wanted["prompt"], LOGGER)
    except Exception as error:  # noqa: BLE001 -- whatever it raises is what the test wants to see
        say({"error": repr(error)})
        return
    say({"output": getattr(session, "switch_name", "")})
    for line in iter(sys.stdin.readline, ""):  # Python 2.7 reads ahead when a file is iterated
        asked = read(line)
        command, expected = asked if isinstance(asked, list) else (asked, wanted["prompt"])
        try:
            answer = {"output": session.hardware_expect(command, expected, LOGGER)}
        except Exception as error:  # noqa: BLE001
            answer = {"error": str(error)}
        say(answer)
    session.disconnect()


main()

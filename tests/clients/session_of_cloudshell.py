"""A session of cloudshell-cli, driven by lines of JSON: runs in `.venv-clients`, where lightbed is not.

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

warnings.simplefilter("ignore", DeprecationWarning)  # telnetlib

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


def session_of(wanted):
    where = wanted["host"], wanted["port"]
    who = wanted["user"], wanted["password"]
    if wanted["kind"] == "tcp":
        return Tcp(*where, **WAITS)
    if wanted["kind"] == "tl1":
        return Tl1(where[0], *who, where[1], **WAITS)
    kinds = {"ssh": SSHSession, "telnet": TelnetSession}
    return kinds[wanted["kind"]](where[0], *who, where[1], **WAITS)


def main():
    wanted = json.loads(sys.stdin.readline())
    session = session_of(wanted)
    try:
        session.connect(wanted["prompt"], LOGGER)
    except Exception as error:  # noqa: BLE001 -- whatever it raises is what the test wants to see
        print(json.dumps({"error": repr(error)}), flush=True)
        return
    print(json.dumps({"output": getattr(session, "switch_name", "")}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        command, expected = asked if isinstance(asked, list) else (asked, wanted["prompt"])
        try:
            answer = {"output": session.hardware_expect(command, expected, LOGGER)}
        except Exception as error:  # noqa: BLE001
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)
    session.disconnect()


main()

"""The server side of SSH for tests: one account, and a shell that shouts. Tests import this as they run."""

from __future__ import annotations

import asyncssh


class Shell(asyncssh.SSHServerSession):
    """Repeats every line in capitals; ends at `bye`."""

    def __init__(self, terminals):
        self.terminals = terminals

    def connection_made(self, chan):
        self.chan = chan

    def pty_requested(self, term_type, term_size, term_modes):
        self.terminals.append((term_type, term_size[:2]))
        return True

    def shell_requested(self):
        return True

    def session_started(self):
        self.chan.write(b"ready> ")

    def data_received(self, data, datatype):
        if b"bye" in data:
            self.chan.write(b"goodbye")
            self.chan.exit(0)
        else:
            self.chan.write(data.upper())


class Account(asyncssh.SSHServer):
    def __init__(self, device):
        self.device = device

    def connection_made(self, conn):
        self.device.connections.append(conn)

    def begin_auth(self, username):
        return True

    def password_auth_supported(self):
        return True

    def validate_password(self, username, password):
        self.device.passwords.append(password)
        return (username, password) == ("admin", "root")

    def public_key_auth_supported(self):
        return True

    def validate_public_key(self, username, key):
        return key.public_data in self.device.keys

    def session_requested(self):
        return Shell(self.device.terminals)

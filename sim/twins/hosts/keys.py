"""SSH keys of a lab: a server key for each host, and one key with which root logs in from any host to any other.

The keys are generated in a private memory file system and exist only as long as the lab. No private key is ever on a
disk of the machine.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sim.twins.hosts.netns import KernelFault
from sim.twins.hosts.spec import ETC_FOLDER, HOME_FOLDER, SEARCH_PATH, HostSpec

_TIMEOUT_S = 30.0
_KEY_PAIR = re.compile(r"(-----BEGIN [^\n]*\n.*?\n-----END [^\n]*\n)([^\n]+)\n", re.DOTALL)
_LOGIN_COMMENT = "root@lab"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A key pair in OpenSSH format.

    `private_key` is the content of a file, and `public_key` a line without line ending.
    """

    private_key: str
    public_key: str


@dataclass(frozen=True, slots=True)
class LabKeys:
    """Keys of a lab: `login_key` is the key of root on every host, and `server_keys` maps host names to server keys."""

    login_key: KeyPair
    server_keys: Mapping[str, KeyPair]


def make_keys(hosts: Sequence[str], tool_paths: Mapping[str, str]) -> LabKeys:
    """Generate all keys of a lab. Raise `KernelFault` with the error output of the tools."""
    command = f"{tool_paths['ssh-keygen']} -q -t ed25519 -N ''"
    lines = [
        "set -eu; mount -t tmpfs -o mode=700,size=4m tmpfs /run; cd /run",
        *(
            f"{command} -C {name} -f key; cat key key.pub; rm key key.pub"
            for name in (_LOGIN_COMMENT, *hosts)
        ),
    ]
    process = subprocess.run(
        [tool_paths["unshare"], "--mount", "--propagation", "private", "/bin/sh", "-s"],
        input="\n".join((*lines, "")),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
        env={"PATH": SEARCH_PATH},
    )
    key_pairs = [
        KeyPair(private_key, public_key) for private_key, public_key in _KEY_PAIR.findall(process.stdout)
    ]
    if process.returncode != 0 or len(key_pairs) != len(hosts) + 1:
        raise KernelFault(f"ssh-keygen made no keys for the hosts: {process.stderr.strip()}", code="host")
    return LabKeys(key_pairs[0], dict(zip(hosts, key_pairs[1:], strict=True)))


def make_ssh_files(
    spec: HostSpec, hosts: Sequence[HostSpec], keys: LabKeys, authorized_key: str
) -> Mapping[str, str]:
    """Return the SSH files of a host, by path.

    They let the operator and all hosts log in to this host, and root on this host log in to all hosts. `authorized_key`
    is the public key of the operator.
    """
    return {
        f"{ETC_FOLDER}/ssh_host_ed25519_key": keys.server_keys[spec.name].private_key,
        f"{ETC_FOLDER}/authorized_keys": f"{authorized_key}\n{keys.login_key.public_key}\n",
        f"{HOME_FOLDER}/.ssh/id_ed25519": keys.login_key.private_key,
        f"{HOME_FOLDER}/.ssh/id_ed25519.pub": f"{keys.login_key.public_key}\n",
        f"{HOME_FOLDER}/.ssh/known_hosts": "".join(_format_known_host(host, keys) for host in hosts),
        f"{HOME_FOLDER}/.ssh/config": "".join(
            f"Host {host.name} {host.address.ip}\n  Port {host.ssh_port}\n"
            for host in hosts
            if host.ssh_port != 22
        ),
    }


def _format_known_host(host: HostSpec, keys: LabKeys) -> str:
    """Return the line of a host for `known_hosts`. With a port other than 22, names are written `[name]:port`."""
    names = [host.name, str(host.address.ip)]
    if host.ssh_port != 22:
        names = [f"[{name}]:{host.ssh_port}" for name in names]
    key_type, key = keys.server_keys[host.name].public_key.split(" ")[:2]
    return f"{','.join(names)} {key_type} {key}\n"

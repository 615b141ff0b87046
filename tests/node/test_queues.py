"""Queues of NICs: what is set, and that it is put back however the holder ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from needs import needs

from sim.twins.hosts.redirects import LinkShape
from testbed.node import queues

NODE = Path(queues.__file__).parent
WANTED = {
    "nics": {"nic1": {"rate_mbps": 100, "limit": 50, "shares": [0.75, 0.25]}},
    "sysctls": {"ipv4/tcp_slow_start_after_idle": 0, "ipv4/no_such_setting": 1},
}


def test_a_class_for_each_share_with_a_queue_of_packets():
    commands = [" ".join(command) for command in queues.make_queue_commands("nic1", WANTED["nics"]["nic1"])]

    assert commands[0] == "tc qdisc replace dev nic1 root handle 1b: htb default 1"
    assert "rate 100000kbit ceil 100000kbit" in commands[1]
    assert "classid 1b:1 htb rate 75000kbit ceil 100000kbit" in commands[2]
    assert commands[3] == "tc qdisc add dev nic1 parent 1b:1 pfifo limit 50"
    assert "classid 1b:2 htb rate 25000kbit ceil 100000kbit" in commands[4]


def test_the_bucket_is_small_where_classes_share_a_link_and_a_millisecond_where_there_is_one():
    alone = WANTED["nics"]["nic1"] | {"shares": []}

    assert "burst 3028b cburst 3028b" in " ".join(
        queues.make_queue_commands("nic1", WANTED["nics"]["nic1"])[1]
    )
    assert "burst 15000b cburst 15000b" in " ".join(queues.make_queue_commands("nic1", alone)[1])
    assert "burst 3028b" in " ".join(queues.make_queue_commands("nic1", alone | {"rate_mbps": 20})[1])


def test_a_queue_of_somebody_else_is_refused():
    with pytest.raises(
        queues.QueueError, match="nic1 has the queue cake 8001:, which cannot be restored: remove it first"
    ):
        queues.make_restore_commands(
            "nic1", [{"kind": "cake", "handle": "8001:", "root": True, "options": {}}]
        )


@pytest.fixture
@needs("kernel")
def namespace():
    """Provide a network namespace with a NIC of a token bucket, as simulated hosts have it."""
    name = f"queues{os.getpid()}"
    lines = [
        f"ip netns add {name}",
        f"ip -n {name} link add nic1 type veth peer name far",
        f"ip -n {name} link set nic1 up",
        *(f"tc -n {name} {line}" for line in LinkShape(100, 9000).make_queue_commands("nic1")),
    ]
    for line in lines:
        subprocess.run(line.split(), check=True)
    yield name
    subprocess.run(["ip", "netns", "del", name], check=True)


class Host:
    """A host on which holders run; their state is in a file of the test."""

    def __init__(self, namespace: str, state: Path) -> None:
        self.namespace, self.state = namespace, state
        self.holders: list[subprocess.Popen] = []

    def start(self, mode: str) -> subprocess.Popen:
        program = (
            f"import sys; sys.path.insert(0, {str(NODE)!r}); import queues; from pathlib import Path; "
            f"queues.STATE_FILE = Path({str(self.state)!r}); sys.argv[1:] = [{mode!r}]; sys.exit(queues.main())"
        )
        words = ["ip", "netns", "exec", self.namespace, sys.executable, "-IS", "-c", program]
        self.holders.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return self.holders[-1]

    def hold(self) -> tuple[subprocess.Popen, dict]:
        holder = self.start("hold")
        holder.stdin.write(json.dumps(WANTED) + "\n")
        holder.stdin.flush()
        return holder, json.loads(holder.stdout.readline())

    def settings(self) -> tuple:
        def shown(*words: str) -> str:
            command = ["ip", "netns", "exec", self.namespace, *words]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout

        root, *inner = json.loads(shown("tc", "-j", "qdisc", "show", "dev", "nic1"))
        if root["kind"] == "tbf":
            inner += [
                shown("tc", "class", "show", "dev", "nic1"),
                shown("tc", "filter", "show", "dev", "nic1", "parent", "2:"),
            ]
            assert "flowid 2:1" in inner[-1]
        (link,) = json.loads(shown("ip", "-j", "-d", "link", "show", "dev", "nic1"))
        idle = shown("cat", "/proc/sys/net/ipv4/tcp_slow_start_after_idle")
        return root, inner, link["gso_max_segs"], idle


@pytest.fixture
def host(namespace, tmp_path):
    found = Host(namespace, tmp_path / "queues.json")
    yield found
    for holder in found.holders:
        holder.stdin.close()
        holder.stdout.close()
        holder.wait(30)


@pytest.mark.parametrize("ending", ["input", "signal"])
def test_what_was_there_is_put_back_when_the_input_or_the_process_ends(host, ending):
    before = host.settings()
    holder, said = host.hold()
    assert said == {"event": "set"}
    assert host.settings()[0]["kind"] == "htb"
    assert host.settings()[2:] == (1, "0\n")

    if ending == "input":
        holder.stdin.close()
    else:
        holder.send_signal(signal.SIGTERM)
    holder.wait(30)

    assert host.settings() == before


def test_what_a_killed_holder_left_is_put_back_by_the_next_command(host):
    before = host.settings()
    holder, _ = host.hold()
    holder.kill()
    holder.wait(30)
    assert host.settings() != before

    restoring = host.start("restore")
    assert json.loads(restoring.communicate(timeout=30)[0]) == {"event": "restored"}

    assert host.settings() == before


def test_a_second_holder_is_refused_and_a_later_one_begins_from_what_was_there(host):
    before = host.settings()
    holder, _ = host.hold()
    second, said = host.hold()
    assert said["event"] == "error"
    assert "another run uses the queues of this host" in said["message"]
    assert second.wait(30) == queues.EXIT_BUSY
    holder.kill()
    holder.wait(30)
    third, said = host.hold()
    assert said == {"event": "set"}
    third.communicate(timeout=30)

    assert host.settings() == before

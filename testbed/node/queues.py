"""Set the queues of this host's NICs for a measurement, and restore them when the input ends.

    python3 queues.py hold        reads {"nics": {"nic1": {"rate_mbps": 100, "limit": 16, "shares": [0.75, 0.25]}},
                                  "sysctls": {"ipv4/tcp_slow_start_after_idle": 0}}
    python3 queues.py restore     restores the queues after `hold_settings` was killed

Each NIC gets HTB at its rate: a class for each share, in order, or one class for all. The queue of a class holds
`limit` packets. Segmentation offload is limited to one segment, so each of these is a packet on the wire. A socket
chooses class i by the priority `ROOT_HANDLE << 16 | i + 1`.

`hold_settings` saves the earlier state in a file and locks it. Only a process with the lock restores the state. The
program prints JSON lines: `set`, `restored`, or `error`. Standard library only: this file is copied to the hosts.
Needs root.
"""

from __future__ import annotations

import fcntl
import json
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

ROOT_HANDLE = 0x1B
LINK_CLASS_MINOR = 0xFFFF
STATE_FILE = Path("/run/lightbed-queues.json")
KIB = 1024
PACKET_BYTES = 1514
MIN_PACKETS, BUCKET_DURATION_S = 2, 0.0012
"""Size of the link's token bucket, in packets for several classes, and in seconds for one class.

The job that begins first gets the whole bucket. Where classes share a link, the bucket is as small as HTB allows,
because interleaved jobs would otherwise drift apart. With one class it is a millisecond of the link, so that the link
catches up if the kernel is late.
"""
EXIT_FAILED, EXIT_BUSY = 1, 2


class QueueError(Exception):
    """A command failed, or a queue cannot be restored."""


def print_event(event: str, **details: object) -> None:
    """Print one JSON line on standard output; ignore a closed pipe."""
    with suppress(OSError):
        print(json.dumps({"event": event, **details}), flush=True)


def run_command(*command: str) -> str:
    """Return the output of a command. Raise `QueueError` with its error."""
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise QueueError(f"`{' '.join(command)}`: {process.stderr.strip() or process.returncode}")
    return process.stdout


def make_restore_commands(nic: str, queues: list[dict[str, Any]]) -> list[list[str]]:
    """Return the commands that restore queues, given as `tc -j` shows them, root first.

    Raises `QueueError` for a kind of queue that cannot be restored.

    >>> make_restore_commands("nic1", [{"kind": "fq_codel", "handle": "0:", "root": True, "options": {}}])
    [['tc', 'qdisc', 'del', 'dev', 'nic1', 'root']]
    >>> bucket = {"rate": 12500000, "burst": 131062, "lat": 50000}
    >>> shown = [{"kind": "tbf", "handle": "8001:", "root": True, "options": bucket}]
    >>> " ".join(make_restore_commands("nic1", shown)[0])
    'tc qdisc replace dev nic1 root handle 8001: tbf rate 100000000bit burst 131072b latency 50000us'
    """
    root_queue = next(row for row in queues if row.get("root"))
    inner_queues = [row for row in queues if not row.get("root")]
    if root_queue["handle"] == "0:":  # the kernel's default queue, which comes back by itself
        return [["tc", "qdisc", "del", "dev", nic, "root"]]
    if (
        root_queue["kind"] == "tbf"
        and {"rate", "burst", "lat"} <= set(root_queue["options"])
        and (not inner_queues or _is_simulated(inner_queues))
    ):
        options = root_queue["options"]
        # The kernel keeps the burst as a time and rounds it down, so round it up to whole KiB.
        burst_bytes = -(-int(options["burst"]) // KIB) * KIB
        rate_options = ["rate", f"{int(options['rate']) * 8}bit", "burst", f"{burst_bytes}b"]
        location = ["dev", nic, "root", "handle", root_queue["handle"]]
        bucket_command = [
            "tc",
            "qdisc",
            "replace",
            *location,
            "tbf",
            *rate_options,
            "latency",
            f"{int(options['lat'])}us",
        ]
        return [
            bucket_command,
            *(_make_twin_commands(nic, root_queue["handle"], inner_queues) if inner_queues else []),
        ]
    raise QueueError(
        f"{nic} has the queue {root_queue['kind']} {root_queue['handle']}, which cannot be restored: remove it first"
    )


def _is_simulated(inner_queues: list[dict[str, Any]]) -> bool:
    """Return True for the queues of simulated NICs, where connections take turns and acknowledgements overtake."""
    kinds = [row["kind"] for row in inner_queues]
    return kinds == ["htb", *["bfifo"] * (1 + _TURN_CLASSES)] and inner_queues[0]["handle"] == "2:"


def _make_twin_commands(nic: str, parent: str, inner_queues: list[dict[str, Any]]) -> list[list[str]]:
    """Return the commands that make these queues in a token bucket, as `LinkShape.make_queue_commands` does."""
    limit = inner_queues[1]["options"]["limit"]
    parent_options, classes = f"dev {nic} parent 2:", range(1, 2 + _TURN_CLASSES)
    lines = (
        f"qdisc add dev {nic} parent {parent}1 handle 2: htb default 2",
        *(
            f"class add {parent_options} classid 2:{number:x} htb rate 32gbit prio {int(number > 1)} quantum 18000"
            for number in classes
        ),
        *(
            f"qdisc add {parent_options}{number:x} handle {number + 2:x}: bfifo limit {limit}"
            for number in classes
        ),
        *(
            f"filter add {parent_options} protocol ip prio 1 u32 {match} flowid 2:1"
            for match in _PRIORITY_FILTERS
        ),
        f"filter add {parent_options} protocol ip prio 1 handle 9: u32 divisor {_TURN_CLASSES}",
        *(
            f"filter add {parent_options} protocol ip prio 1 u32 ht 9:{turn:x}: match u32 0 0 flowid 2:{turn + 2:x}"
            for turn in range(_TURN_CLASSES)
        ),
        f"filter add {parent_options} protocol ip prio 1 u32 ht 800: {_SOURCE_PORT_FILTER} link 9:",
    )
    return [["tc", *line.split()] for line in lines]


_PRIORITY_FILTERS = (
    "match u8 1 0xff at 9 match u16 0 0xff00 at 2",
    *(
        f"match u16 {20 + 4 * header_words} 0xffff at 2 match u8 0x45 0xff at 0 match u8 6 0xff at 9"
        f" match u8 {header_words << 4} 0xf0 at 32 match u8 0x10 0xff at 33"
        for header_words in range(5, 16)
    ),
)
"""Filters for pings and for acknowledgements without data, as in `LinkShape.make_queue_commands` of the twins."""
_TURN_CLASSES = 16
_SOURCE_PORT_FILTER = "match u8 0x45 0xff at 0 match u8 6 0xff at 9 hashkey mask 0x001e0000 at 20"


def make_queue_commands(nic: str, queue: dict[str, Any]) -> list[list[str]]:
    """Return the commands that give a NIC its queues."""
    rate_kbit, shares = round(queue["rate_mbps"] * 1000), queue["shares"] or [1.0]
    bucket_bytes = 0 if queue["shares"] else round(queue["rate_mbps"] * 1e6 / 8 * BUCKET_DURATION_S)
    burst_text = f"{max(bucket_bytes, MIN_PACKETS * PACKET_BYTES)}b"
    bucket_options = ["burst", burst_text, "cburst", burst_text, "quantum", str(PACKET_BYTES)]
    link_class = f"{ROOT_HANDLE:x}:{LINK_CLASS_MINOR:x}"
    limit_options = ["rate", f"{rate_kbit}kbit", "ceil", f"{rate_kbit}kbit", *bucket_options]
    commands = [
        ["qdisc", "replace", "dev", nic, "root", "handle", f"{ROOT_HANDLE:x}:", "htb", "default", "1"],
        [
            "class",
            "add",
            "dev",
            nic,
            "parent",
            f"{ROOT_HANDLE:x}:",
            "classid",
            link_class,
            "htb",
            *limit_options,
        ],
    ]
    for class_number, share in enumerate(shares, 1):
        share_class = f"{ROOT_HANDLE:x}:{class_number:x}"
        rate_options = [
            "rate",
            f"{max(1, round(rate_kbit * share))}kbit",
            "ceil",
            f"{rate_kbit}kbit",
            *bucket_options,
        ]
        commands += [
            ["class", "add", "dev", nic, "parent", link_class, "classid", share_class, "htb", *rate_options],
            ["qdisc", "add", "dev", nic, "parent", share_class, "pfifo", "limit", str(queue["limit"])],
        ]
    return [["tc", *command] for command in commands]


def read_state(request: dict[str, Any]) -> dict[str, Any]:
    """Return the current state of what the request changes. Raise `QueueError` for queues that cannot be restored."""
    state_by_nic = {}
    for nic in request["nics"]:
        rows = json.loads(run_command("tc", "-j", "qdisc", "show", "dev", nic))
        (link,) = json.loads(run_command("ip", "-j", "-d", "link", "show", "dev", nic))
        state_by_nic[nic] = {"queues": rows, "gso_max_segs": link["gso_max_segs"]}
        make_restore_commands(nic, rows)
    value_by_sysctl = {
        name: Path("/proc/sys/net", name).read_text().strip()
        for name in select_existing_sysctls(request["sysctls"])
    }
    return {"nics": state_by_nic, "sysctls": value_by_sysctl}


def select_existing_sysctls(sysctls: dict[str, Any]) -> list[str]:
    """Return the settings that this kernel has."""
    return [name for name in sysctls if Path("/proc/sys/net", name).exists()]


def apply_request(request: dict[str, Any]) -> None:
    """Set queues and kernel settings. Raises `QueueError`, `OSError`."""
    for name in select_existing_sysctls(request["sysctls"]):
        Path("/proc/sys/net", name).write_text(f"{request['sysctls'][name]}\n")
    for nic, queue in request["nics"].items():
        run_command("ip", "link", "set", "dev", nic, "gso_max_segs", "1")
        for command in make_queue_commands(nic, queue):
            run_command(*command)


def restore_state(saved_state: dict[str, Any]) -> list[str]:
    """Restore queues and settings; return the errors."""
    error_texts = []
    for nic, saved_nic in saved_state["nics"].items():
        segments_command = ["ip", "link", "set", "dev", nic, "gso_max_segs", str(saved_nic["gso_max_segs"])]
        for command in (*make_restore_commands(nic, saved_nic["queues"]), segments_command):
            try:
                run_command(*command)
            except QueueError as error:
                error_texts.append(str(error))
    for name, value in saved_state["sysctls"].items():
        try:
            Path("/proc/sys/net", name).write_text(f"{value}\n")
        except OSError as error:
            error_texts.append(f"net/{name}: {error.strerror}")
    return error_texts


def restore_from_file(state_file: IO[str]) -> None:
    """Restore the state in the file, and empty it. Raise `QueueError` with the errors."""
    state_file.seek(0)
    text = state_file.read()
    errors = restore_state(json.loads(text)) if text else []
    state_file.seek(0)
    state_file.truncate()
    if errors:
        raise QueueError("; ".join(errors))


def hold_settings(state_file: IO[str]) -> None:
    """Apply the first line of input, and restore the earlier state at the end of the input or on a signal."""
    request = json.loads(sys.stdin.readline())
    restore_from_file(state_file)
    state_file.write(json.dumps(read_state(request)))
    state_file.flush()
    try:
        apply_request(request)
        print_event("set")
        for _line in sys.stdin:
            pass
    finally:
        for signal_number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(signal_number, signal.SIG_IGN)
        restore_from_file(state_file)


def interrupt(_number: int, _frame: object) -> None:
    """End the wait for input."""
    raise SystemExit(EXIT_FAILED)


def main() -> int:
    """Hold or restore; return the exit status."""
    for signal_number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(signal_number, interrupt)
    with STATE_FILE.open("a+", encoding="utf-8") as state_file:
        try:
            fcntl.flock(state_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print_event("error", message="another run uses the queues of this host: wait for it, or stop it")
            return EXIT_BUSY
        try:
            hold_settings(state_file) if sys.argv[1] == "hold" else restore_from_file(state_file)
        except (QueueError, OSError, ValueError, KeyError) as error:
            print_event("error", message=str(error)[:500])
            return EXIT_FAILED
    print_event("restored")
    return 0


if __name__ == "__main__":
    sys.exit(main())

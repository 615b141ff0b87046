"""Send frames that name their sender on every NIC, and report the received frames: a test of fibres, not hosts.

    python3 probe.py --host a --epoch 7 nic1 nic2

Opens every NIC that exists, prints `{"event": "ready"}`, waits for a line `go`, sends a few frames on each NIC,
prints `{"event": "sent"}` and listens until its input ends, so that no host stops before the last one has sent.
Then it prints
`{"event": "heard", "nics": {NIC: {"carrier", "sent", "frames": [[host, nic, epoch], ...], "counters"}}}`;
`counters` holds the packets that the NIC sent, received, and received with errors in this time.
Frames are one-way (EtherType 0x88B5, local experimental), so each direction of a link is tested separately.
Standard library only: this file is copied to the hosts. Needs root (AF_PACKET).
"""

from __future__ import annotations

import argparse
import array
import contextlib
import errno
import fcntl
import json
import select
import socket
import struct
import sys
import time
from pathlib import Path

ETHERTYPE = 0x88B5
MAGIC = b"lightbed-probe-1 "
BROADCAST_MAC = b"\xff" * 6
MIN_FRAME_BYTES = 60
SIOCGIFHWADDR, SIOCETHTOOL, ETHTOOL_GLINK = 0x8927, 0x8946, 0x0A
FRAME_COPIES, COPY_SPACING_S = 3, 0.03
COUNTERS = ("tx_packets", "rx_packets", "rx_errors")


def encode_frame(mac: bytes, host: str, nic: str, epoch: int) -> bytes:
    """Return one Ethernet frame that names its sender."""
    payload = MAGIC + json.dumps([host, nic, epoch]).encode()
    frame = BROADCAST_MAC + mac + struct.pack("!H", ETHERTYPE) + payload
    return frame.ljust(MIN_FRAME_BYTES, b"\0")


def decode_frame(frame: bytes) -> tuple[str, str, int] | None:
    """Return (host, NIC, epoch) of a probe frame, None for anything else."""
    payload = frame[14:].rstrip(b"\0")
    if not payload.startswith(MAGIC):
        return None
    try:
        host, nic, epoch = json.loads(payload[len(MAGIC) :])
    except (ValueError, TypeError):  # not JSON, or not a list of three
        return None
    is_valid = isinstance(host, str) and isinstance(nic, str) and isinstance(epoch, int)
    return (host, nic, epoch) if is_valid else None


def open_nic(nic: str) -> socket.socket:
    """Return a socket that sends on one NIC and receives probe frames there."""
    packet_socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
    packet_socket.bind((nic, ETHERTYPE))
    packet_socket.setblocking(False)
    return packet_socket


def read_mac(packet_socket: socket.socket, nic: str) -> bytes:
    """Return the MAC address of a NIC."""
    answer = fcntl.ioctl(packet_socket, SIOCGIFHWADDR, struct.pack("16s24x", nic.encode()))
    return answer[18:24]


def has_carrier(packet_socket: socket.socket, nic: str) -> bool:
    """Return whether the NIC receives light now (the kernel's flags follow up to a second later)."""
    link_value = array.array("I", [ETHTOOL_GLINK, 0])
    buffer_address, _ = link_value.buffer_info()
    fcntl.ioctl(packet_socket, SIOCETHTOOL, struct.pack("16sP16x", nic.encode(), buffer_address))
    return bool(link_value[1])


def read_counters(nic: str) -> dict[str, int]:
    """Return the counters of a NIC since its creation, without those that cannot be read."""
    counters = {}
    for name in COUNTERS:
        with contextlib.suppress(OSError, ValueError):
            counters[name] = int(Path(f"/sys/class/net/{nic}/statistics/{name}").read_text())
    return counters


class ProbeNic:
    """One NIC, with the frames that it sent and received."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.connection = open_nic(name)
        self.sent_count = 0
        self.received_frames: list[tuple[str, str, int]] = []
        self.counters_before = read_counters(name)

    def send_frame(self, host: str, epoch: int) -> None:
        """Send one frame. A NIC without carrier cannot send, which is a finding, not an error."""
        try:
            self.connection.send(encode_frame(read_mac(self.connection, self.name), host, self.name, epoch))
            self.sent_count += 1
        except OSError:
            pass

    def receive_frames(self) -> None:
        """Read the frames that have arrived."""
        while True:
            try:
                sender = decode_frame(self.connection.recv(2048))
            except OSError:
                return  # nothing more, or the NIC went down
            if sender and sender not in self.received_frames:
                self.received_frames.append(sender)

    def make_report(self) -> dict[str, object]:
        """Return the report of this NIC, which may have been removed since it was opened."""
        try:
            carrier = has_carrier(self.connection, self.name)
        except OSError:
            carrier = False
        counters_before = self.counters_before
        counters = {
            name: count - counters_before[name]
            for name, count in read_counters(self.name).items()
            if name in counters_before
        }
        return {
            "carrier": carrier,
            "sent": self.sent_count,
            "frames": self.received_frames,
            "counters": counters,
        }


def open_nics(names: list[str]) -> list[ProbeNic]:
    """Open the NICs that exist. A missing NIC is a finding for the caller, not an error."""
    nics = []
    for name in names:
        try:
            nics.append(ProbeNic(name))
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise
    return nics


def print_event(event: str, **details: object) -> None:
    """Print one JSON line."""
    print(json.dumps({"event": event, **details}), flush=True)


def send_frames(nics: list[ProbeNic], host: str, epoch: int) -> None:
    """Send a few copies of the frame on every NIC, and receive frames after each."""
    for copy in range(FRAME_COPIES):
        if copy:
            time.sleep(COPY_SPACING_S)
        for nic in nics:
            nic.send_frame(host, epoch)
            nic.receive_frames()


def listen(nics: list[ProbeNic]) -> None:
    """Collect frames until the input ends."""
    while True:
        ready_files, _, _ = select.select([sys.stdin, *(nic.connection for nic in nics)], [], [])
        for nic in nics:
            nic.receive_frames()
        if sys.stdin in ready_files and not sys.stdin.readline():
            return


def main() -> None:
    """Read the command line, wait for `go`, send frames, listen, report."""
    parser = argparse.ArgumentParser(description="Send and hear one-way probe frames.")
    parser.add_argument("--host", required=True)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("nics", nargs="+")
    options = parser.parse_args()
    nics = open_nics(options.nics)
    print_event("ready")
    if sys.stdin.readline().strip() != "go":
        return
    send_frames(nics, options.host, options.epoch)
    print_event("sent")
    listen(nics)
    silent_report = {"carrier": False, "sent": 0, "frames": [], "counters": {}}
    print_event(
        "heard",
        nics=dict.fromkeys(options.nics, silent_report) | {nic.name: nic.make_report() for nic in nics},
    )


if __name__ == "__main__":
    main()

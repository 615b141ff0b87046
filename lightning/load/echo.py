"""An echo server without computation, to measure the limits of the load generator.

`python -m lightning.load.echo http|udp` prints the port, and answers until its standard input ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator

from lightbed.children import make_child_environment, make_module_command
from lightning.load.http_messages import find_message_length
from lightning.load.targets import Target
from lightning.serving.packets.mmsg import (
    ADDRESS_BYTES,
    RECEIVE_BUFFER_BYTES,
    SLOT_BYTES,
    Inbox,
    find_memory_address,
)

HTTP_ANSWER = (
    b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{"outputs": []}'
)
HOST = "127.0.0.1"


@contextlib.contextmanager
def run_echo(scheme: str) -> Iterator[Target]:
    """Run an echo server in its own process, on the last core, and yield its target."""
    command = make_module_command("lightning.load.echo", scheme)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=make_child_environment()
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            yield Target("http" if scheme == "http" else "udp", HOST, port)
        finally:
            process.stdin.close()


def echo_datagrams(server: socket.socket, stop_descriptor: int) -> None:
    """Send every datagram back until the descriptor `stop_descriptor` is readable.

    It receives many datagrams at a time, because the echo must be faster than the generator.
    """
    inbox = Inbox(server, 64)
    buffer_pointer, first_sender_pointer = (
        find_memory_address(inbox.slot_bytes),
        find_memory_address(inbox.sender_addresses),
    )
    descriptors: list[int] = [server.fileno(), stop_descriptor]
    while stop_descriptor not in select.select(descriptors, [], [])[0]:
        while count := inbox.receive():
            for slot, length in enumerate(inbox.list_lengths(count)):
                sender_pointer = first_sender_pointer + slot * ADDRESS_BYTES
                inbox.library.sendto(
                    inbox.file_descriptor,
                    buffer_pointer + slot * SLOT_BYTES,
                    length,
                    socket.MSG_DONTWAIT,
                    sender_pointer,
                    ADDRESS_BYTES,
                )


def echo_http(server: socket.socket, stop_descriptor: int) -> None:
    """Answer every request with the same bytes until the descriptor `stop_descriptor` is readable."""
    poll = select.epoll()
    clients: dict[int, tuple[socket.socket, bytes]] = {}
    poll.register(server, select.EPOLLIN)
    poll.register(stop_descriptor, select.EPOLLIN | select.EPOLLHUP)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == stop_descriptor:
                return
            if descriptor == server.fileno():
                client, _ = server.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                clients[client.fileno()] = client, b""
                poll.register(client, select.EPOLLIN)
            else:
                client, partial_request = clients[descriptor]
                data = client.recv(1 << 16)
                if data:
                    clients[descriptor] = client, _answer_requests(client, partial_request + data)
                else:
                    poll.unregister(descriptor)
                    clients.pop(descriptor)[0].close()


def _answer_requests(client: socket.socket, received_bytes: bytes) -> bytes:
    """Answer the complete requests in a buffer, and return the rest."""
    while length := find_message_length(received_bytes):
        received_bytes = received_bytes[length:]
        client.sendall(HTTP_ANSWER)
    return received_bytes


def main(scheme: str) -> None:
    """Print the port and answer until standard input ends."""
    with contextlib.suppress(OSError):  # the parent process may be pinned to its own core
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    socket_type = socket.SOCK_DGRAM if scheme == "udp" else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, socket_type) as server:
        server.bind((HOST, 0))
        if scheme == "http":
            server.listen(64)
        else:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        sys.stdout.write(f"{server.getsockname()[1]}\n")
        sys.stdout.flush()
        (echo_datagrams if scheme == "udp" else echo_http)(server, sys.stdin.fileno())


if __name__ == "__main__":
    main(sys.argv[1])

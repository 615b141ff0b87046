"""Requests to the control socket of a twin: set a fault, advance the clock, read the true state.

Only simulated labs have such sockets. Requests and replies are JSON objects, one per line.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any

from testbed.errors import LabStartError


def send_request(address: str, request: Mapping[str, Any], *, timeout_s: float = 10.0) -> dict[str, Any]:
    """Send one request (`{"do": "truth"}`) to `host:port` and return the reply.

    Raises `LabStartError` if the socket does not answer or the twin refuses the request.
    """
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
            connection.sendall(json.dumps(dict(request)).encode() + b"\n")
            with connection.makefile("rb") as stream:
                reply: dict[str, Any] = json.loads(stream.readline())
    except (OSError, ValueError) as error:
        problem = f"the control socket {address} does not answer ({error})"
        raise LabStartError(f"{problem}; check with `testbed sim status` that the lab runs") from error
    if not reply.get("ok"):
        raise LabStartError(
            f"the control socket {address} refused {request.get('do')!r}: {reply.get('error')}"
        )
    return reply

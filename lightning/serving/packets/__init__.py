"""Inference in UDP packets.

| module | contents |
|---|---|
| `codec` | inference packets, without sockets |
| `server` | the packet server and its thread |
| `packet_loop` | the loop that answers datagrams |
| `mmsg` | system calls that send or receive many datagrams |
| `reassembly` | messages joined from fragments, and a cache of recent requests |
| `counts` | counts of the outcomes of requests |
| `services` | answers of a model as datagrams |
| `packet_kernel` | the compiled fast path |
| `deferred` | requests that another thread answers |
"""

from __future__ import annotations

from lightning.serving.packets.codec import (
    Kind,
    Packet,
    PacketError,
    decode_answer,
    parse,
    serialise,
    split,
)

__all__ = ["Kind", "Packet", "PacketError", "decode_answer", "parse", "serialise", "split"]

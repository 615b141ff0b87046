"""Inference in UDP packets.

| module | contents |
|---|---|
| `codec` | inference packets, without sockets |
| `server`, `packet_loop` | the packet server and its thread; the loop that answers datagrams |
| `mmsg`, `reassembly`, `counts` | many datagrams per system call; fragments and repetitions; outcomes |
| `services`, `packet_kernel` | answers of a model as datagrams; the compiled fast path |
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

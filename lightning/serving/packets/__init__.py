"""Models in UDP packets.

| module | what it is for |
|---|---|
| `codec` | inference packets, without sockets |
| `server`, `packet_loop` | the packet server: its thread; from a datagram to its outcome |
| `mmsg`, `reassembly`, `counts` | many datagrams at a time; fragments and repetitions; outcomes |
| `services`, `packet_kernel` | a model as packets see it, and its short way in machine code |
| `deferred` | packets that are answered by a thread of their own |
"""

from __future__ import annotations

from lightning.serving.packets.codec import Kind, Packet, PacketError, parse, read_answer, serialise, split

__all__ = ["Kind", "Packet", "PacketError", "parse", "read_answer", "serialise", "split"]

"""Models in UDP packets.

| module | what it is for |
|---|---|
| `codec` | inference packets, without sockets |
| `server`, `packet_loop` | the packet server: its thread; from a datagram to its outcome |
| `mmsg`, `reassembly`, `replay_cache`, `counts` | many datagrams at a time, fragments, repetitions, outcomes |
| `services`, `deferred` | a model as packets see it; packets that are answered by a thread of their own |
| `fast_path`, `packet_kernel` | the loop in machine code |
"""

from __future__ import annotations

from lightning.serving.packets.codec import Kind, Packet, PacketError, parse, read_answer, serialise, split

__all__ = ["Kind", "Packet", "PacketError", "parse", "read_answer", "serialise", "split"]

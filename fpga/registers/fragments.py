"""Pieces of the text of a top: instances, vectors, and what a part of a top consists of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fragment:
    """Lines that one stream, or one group of registers, adds to a top."""

    ports: tuple[str, ...] = ()
    body: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    """Bits that nothing looks at; they are named so that a linter knows it is meant."""


def joined(parts: Iterable[Fragment]) -> Fragment:
    """Return all parts as one."""
    every = tuple(parts)
    return Fragment(
        tuple(port for part in every for port in part.ports),
        tuple(line for part in every for line in part.body),
        tuple(bits for part in every for bits in part.unused),
    )


def bit_range(width: int) -> str:
    """Return `[15:0] ` for a vector, nothing for a bit."""
    return f"[{width - 1}:0] " if width > 1 else ""


def padded(wire: str, spare: int) -> str:
    """Return the wire with so many zeros above it."""
    return f"{{{spare}'b0, {wire}}}" if spare else wire


def extended(wire: str, width: int, whole: int) -> str:
    """Return the wire with its sign above it."""
    sign = f"{wire}[{width - 1}]" if width > 1 else wire
    return f"{{{{{whole - width}{{{sign}}}}}, {wire}}}" if whole > width else wire


def cut(wire: str, whole: int, width: int) -> str:
    """Return the lower `width` bits of a wire that has `whole`."""
    return wire if width == whole else f"{wire}[{width - 1}:0]"


def rest(wire: str, whole: int, width: int) -> tuple[str, ...]:
    """Return the bits that `cut` leaves out, where there are some."""
    return () if width == whole else (f"{wire}[{whole - 1}:{width}]",)


def concatenated(wires: Iterable[str]) -> str:
    """Return the wires side by side, the first in the lowest bits."""
    return f"{{{', '.join(reversed(list(wires)))}}}"


def instance(block: str, name: str, ports: Mapping[str, str], **parameters: int) -> Iterator[str]:
    """Return an instance, one port a line."""
    if parameters:
        yield f"{block} #("
        yield from _listed(parameters)
        yield f") {name} ("
    else:
        yield f"{block} {name} ("
    yield from _listed(ports)
    yield ");"


def _listed(pairs: Mapping[str, object]) -> list[str]:
    return ",\n".join(f"  .{key}({value})" for key, value in pairs.items()).split("\n")

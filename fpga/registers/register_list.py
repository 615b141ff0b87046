"""Registers of a datapath, each with the signal that it shows or sets.

The top, the simulated bus and the documents are all generated from this list. The first part exists in both tops, at
the same offsets: ID, HASH, CONTROL, status, counts, targets, flags, numbers and pulses. The top without stream ports
has the portal in addition: registers through which a driver pushes beats into the external streams and takes beats
out of the FIFOs behind the output streams.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

from fpga.count_action.actions import KINDS
from fpga.count_action.actions.memory import compute_address_width, list_memories
from fpga.count_action.model import Action, ActionKind, Datapath, Signal, SignalKind
from fpga.registers.model import WORD_BITS, Access, BitField, BlockPin, Key, MapBuilder, PortBits, RegisterMap

FIFO_DEPTH = 16
"""Number of beats in the FIFO behind an output stream; the datapath stalls when it is full."""

HIGH = "HIGH"
"""Last part of the key of a register for the bits above 31."""
COMMIT, CLEAR_STATUS, RESET, HOLD = 1, 2, 4, 8
"""Bits of CONTROL."""


class StreamAccess(enum.Enum):
    """Access to the external streams of a top; the value is the value of its ID register."""

    REGISTERS = 0x4341_0101
    """The portal: through registers, beat by beat."""
    AXI_STREAM = 0x4341_0102
    """Through AXI-Stream ports."""


_CONTROL = (
    BitField("COMMIT", 0, 1, "All TARGET registers take effect together, in the next cycle", "commit_i"),
    BitField("CLEAR_STATUS", 1, 1, "OVERSHOOT and SATURATED become 0", "clear_status_i"),
    BitField(
        "RESET", 2, 1, "The datapath, the portal and all registers return to their state after power-on"
    ),
    BitField("HOLD", 3, 1, "The datapath stays in reset until the next COMMIT, and starts with its targets"),
)


def make_register_map(
    datapath: Datapath, stream_access: StreamAccess = StreamAccess.REGISTERS
) -> RegisterMap:
    """Return the registers of the AXI4-Lite top of `datapath`."""
    builder = MapBuilder()
    _add_identity(builder, datapath, stream_access)
    _add_counts(builder, datapath)
    _add_targets(builder, datapath)
    _add_levels(builder, [signal for signal in datapath.inputs if not signal.part_of])
    _add_effects(builder, datapath)
    _add_memories(builder, datapath)
    if stream_access is StreamAccess.REGISTERS:
        # `last` and `keep` are pins of AXI-Stream ports, but need registers if the streams pass through registers.
        _add_levels(
            builder, [signal for signal in datapath.inputs if signal.part_of and not signal.loads_memory]
        )
        _add_portal(builder, datapath)
    return RegisterMap(datapath.name, datapath.digest, tuple(builder.registers))


def list_output_streams(datapath: Datapath) -> Iterator[tuple[str, str, int, int, bool]]:
    """Yield (module, name, samples per beat, bits per sample, signed) of each output stream of the datapath."""
    consumed_streams = datapath.consumed
    for module in datapath.modules:
        for action in module.list_streams():
            if (module.name, action.output) not in consumed_streams:
                yield module.name, action.output, action.lanes, action.width, action.signed


def list_effects(datapath: Datapath) -> Iterator[tuple[str, str, Action]]:
    """Yield (module, name, first action that drives it) of each pulse, flag and number that modules drive."""
    for module in datapath.modules:
        for name, action in module.map_outputs().items():
            if action.kind.drives is not SignalKind.STREAM and action.kind is not ActionKind.MEMORY:
                yield module.name, name, action


def _add_identity(builder: MapBuilder, datapath: Datapath, stream_access: StreamAccess) -> None:
    builder.add(
        "ID",
        access=Access.CONSTANT,
        reset_value=stream_access.value,
        description="Count-action datapath (0x4341), layout 1, streams through registers (1) or AXI-Stream (2)",
    )
    builder.add(
        "HASH",
        access=Access.CONSTANT,
        reset_value=datapath.digest,
        description="Identity of the datapath: the hash of its representation",
    )
    builder.add(
        "CONTROL",
        access=Access.PULSE,
        width=len(_CONTROL),
        fields=_CONTROL,
        description="Commands that act at once",
    )


def _add_counts(builder: MapBuilder, datapath: Datapath) -> None:
    counts = list(datapath.list_counts())
    for key, port, event in (
        ("OVERSHOOT", "overshoot_o", "jumped over its target (R4)"),
        ("SATURATED", "saturated_o", "exceeded its width (R10)"),
    ):
        builder.add_packed(
            key,
            access=Access.READ,
            description=f"Bit n: the n-th count {event}; sticky",
            signal=PortBits(port, len(counts)),
        )
    low_bit = 0
    for number, (module, count) in enumerate(counts):
        _add_wide_register(
            builder,
            ("COUNT", module.name, count.name),
            PortBits("count_o", count.width, low_bit),
            f"Count {number}, {count.name} of {module.name}: its current value",
            Access.READ,
        )
        low_bit += count.width


def _add_targets(builder: MapBuilder, datapath: Datapath) -> None:
    low_bit = 0
    for module, target in datapath.list_targets():
        _add_wide_register(
            builder,
            ("TARGET", module.name, target.name),
            PortBits("target_shadow_i", target.width, low_bit),
            f"Target {target.name} of {module.name}, in the shadow bank until COMMIT; 0: never",
            Access.WRITE,
            target.reset,
        )
        low_bit += target.width


def _add_wide_register(
    builder: MapBuilder, key: Key, signal: PortBits, description: str, access: Access, reset_value: int = 0
) -> None:
    """Append a register, and a second one, `HIGH`, for the bits above 31 if there are any."""
    lower_bits = min(signal.width, WORD_BITS)
    upper_bits = signal.width - lower_bits
    low_bit = 0 if upper_bits and signal.low_bit is None else signal.low_bit
    builder.add(
        *key,
        access=access,
        width=lower_bits,
        reset_value=reset_value & (1 << WORD_BITS) - 1,
        description=description,
        signal=PortBits(signal.port, lower_bits, low_bit),
    )
    if upper_bits:
        builder.add(
            *key,
            HIGH,
            access=access,
            width=upper_bits,
            reset_value=reset_value >> WORD_BITS,
            description=f"{description}; the bits above 31",
            signal=PortBits(signal.port, upper_bits, (low_bit or 0) + WORD_BITS),
        )


def _add_levels(builder: MapBuilder, inputs: list[Signal]) -> None:
    for signal in inputs:
        if signal.kind is SignalKind.FLAG:
            builder.add_packed(
                "IN",
                signal.name,
                access=Access.WRITE,
                description=f"Input flag {signal.name}, one bit each",
                signal=PortBits(f"{signal.name}_i", signal.size),
            )
        elif signal.kind is SignalKind.NUMBER:
            builder.add(
                "IN",
                signal.name,
                access=Access.WRITE,
                width=signal.width,
                word_count=signal.size,
                description=f"Input number {signal.name}, one word each",
                signal=PortBits(f"{signal.name}_i", signal.size * signal.width),
            )


def _add_effects(builder: MapBuilder, datapath: Datapath) -> None:
    for module, name, action in list_effects(datapath):
        description = f"{name} of {module}: {KINDS[action.kind].register}"
        if not action.kind.is_transient:
            signal = PortBits(f"{module}_{name}_o", action.width)
            _add_wide_register(builder, ("OUT", module, name), signal, description, Access.READ)
            continue
        builder.add(
            "OUT",
            module,
            name,
            access=Access.READ,
            description=description,
            signal=BlockPin("pulses", f"{module}_{name}", "pulses", WORD_BITS),
        )


def _add_memories(builder: MapBuilder, datapath: Datapath) -> None:
    for module, memory in list_memories(datapath):
        key, block_name = ("MEMORY", module.name, memory.output), f"{module.name}_{memory.output}"
        subject, address_bits = (
            f"Memory {memory.output} of {module.name}",
            compute_address_width(memory.words),
        )
        builder.add(
            *key,
            "ADDRESS",
            access=Access.PUSH,
            width=address_bits,
            description=f"{subject}: address of the next word that is loaded, and of WORD; {memory.words} words",
            signal=BlockPin("memory", block_name, "address", address_bits),
        )
        builder.add_packed(
            *key,
            "LOAD",
            access=Access.PUSH,
            description=f"{subject}: a write of the last word loads the word at ADDRESS, which goes up by one",
            signal=BlockPin("memory", block_name, "load", memory.width),
        )
        builder.add_packed(
            *key,
            "WORD",
            access=Access.READ,
            description=f"{subject}: {KINDS[memory.kind].register}",
            signal=PortBits(f"{block_name}_o", memory.width),
        )


def _add_portal(builder: MapBuilder, datapath: Datapath) -> None:
    for signal in datapath.inputs:
        if signal.kind is SignalKind.STREAM:
            _add_source(builder, signal)
    for module, name, sample_count, width, _ in list_output_streams(datapath):
        _add_sink(builder, module, name, sample_count * width)


def _add_source(builder: MapBuilder, signal: Signal) -> None:
    subject = f"Input stream {signal.name}"
    bits = signal.size * signal.lanes * signal.width
    shape = f"{signal.size} x {signal.lanes} samples of {signal.width} bits, packed, least significant first"
    builder.add_packed(
        "IN",
        signal.name,
        "DATA",
        access=Access.WRITE,
        description=f"{subject}: the next beat, {shape}",
        signal=BlockPin("source", signal.name, "data", bits),
    )
    builder.add_packed(
        "IN",
        signal.name,
        "PUSH",
        access=Access.PUSH,
        description=f"{subject}: a 1 offers the beat of that stream; a write of the last word acts for all words",
        signal=BlockPin("source", signal.name, "push", signal.size),
    )
    builder.add_packed(
        "IN",
        signal.name,
        "WAITING",
        access=Access.READ,
        description=f"{subject}: 1 while its beat is not taken; do not change its DATA meanwhile",
        signal=BlockPin("source", signal.name, "waiting", signal.size),
    )


def _add_sink(builder: MapBuilder, module: str, name: str, bits: int) -> None:
    subject, stream = f"Output stream {name} of {module}", f"{module}_{name}"
    builder.add_packed(
        "OUT",
        module,
        name,
        "DATA",
        access=Access.READ,
        description=f"{subject}: the oldest beat; 0 if there is none",
        signal=BlockPin("sink", stream, "data", bits),
    )
    builder.add(
        "OUT",
        module,
        name,
        "LEVEL",
        access=Access.READ,
        width=FIFO_DEPTH.bit_length(),
        description=f"{subject}: number of waiting beats, at most {FIFO_DEPTH}",
        signal=BlockPin("sink", stream, "level", FIFO_DEPTH.bit_length()),
    )
    builder.add(
        "OUT",
        module,
        name,
        "POP",
        access=Access.PULSE,
        width=1,
        fields=(BitField("POP", 0, 1, "The oldest beat is removed"),),
        description=f"{subject}: write 1 to drop the oldest beat",
        signal=BlockPin("sink", stream, "pop", 1),
    )

"""Rules for the AXI-Stream ports of a top: every beat passes once, in order and unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fpga.count_action.model import Datapath, Signal, SignalKind
from fpga.count_action.ports import list_end_signal_actions
from fpga.registers.register_list import list_output_streams
from fpga.verify.bus_bench import Pin, StreamPins
from fpga.verify.bus_record import Breach, Columns, find_handshakes, find_waits_for_ready

MAX_BEATS_IN_FLIGHT = 4
"""Beats of a stream that a reset may drop between a port and the datapath."""
_COMPARED_BEAT_COUNT = 8
"""Number of beats that are compared to find how many a reset has dropped."""


@dataclass(frozen=True, slots=True)
class Stream:
    """An AXI-Stream port, and the datapath's ports for its beats: their name, index, and bits of a beat.

    `end_ports` lists `last` and `keep`: suffix of the pin, port of the datapath, number of lanes.
    """

    pins: StreamPins
    port: str
    index: int
    beat_bits: int
    is_signed: bool = False
    end_ports: tuple[tuple[str, str, int], ...] = ()


def list_stream_ports(datapath: Datapath) -> tuple[Stream, ...]:
    """Return the AXI-Stream ports of the top of a datapath."""
    return (*_list_inputs(datapath), *_list_outputs(datapath))


def _list_inputs(datapath: Datapath) -> Iterator[Stream]:
    for signal in datapath.inputs:
        if signal.kind is not SignalKind.STREAM:
            continue
        end_ports = [_describe_end(signal, end) for end in datapath.inputs if end.part_of == signal.name]
        for index in range(signal.size):
            prefix = f"s_axis_{signal.name}" + (f"_{index}" if signal.size > 1 else "")
            bits = signal.lanes * signal.width
            payload = _make_payload(prefix, bits, signal.width, end_ports, is_driven=True)
            yield Stream(
                StreamPins(prefix, payload, is_input=True),
                signal.name,
                index,
                bits,
                end_ports=tuple(_name_ports(end_ports, "_i")),
            )


def _describe_end(stream: Signal, end: Signal) -> tuple[str, str, int]:
    return ("last" if end.name == f"{stream.name}_last" else "keep", end.name, end.size)


def _list_outputs(datapath: Datapath) -> Iterator[Stream]:
    for module, name, sample_count, width, signed in list_output_streams(datapath):
        stream = f"{module}_{name}"
        end_ports = [
            (kind, f"{module}_{action.output}", action.width)
            for kind, action in list_end_signal_actions(datapath.module(module), name)
        ]
        payload = _make_payload(f"m_axis_{stream}", sample_count * width, width, end_ports, is_driven=False)
        pins_of_stream = StreamPins(f"m_axis_{stream}", payload, is_input=False)
        yield Stream(
            pins_of_stream, stream, 0, sample_count * width, signed, tuple(_name_ports(end_ports, "_o"))
        )


def _name_ports(end_ports: list[tuple[str, str, int]], side: str) -> Iterator[tuple[str, str, int]]:
    return ((kind, f"{port}{side}", lanes) for kind, port, lanes in end_ports)


def _make_payload(
    prefix: str, bits: int, width: int, end_ports: list[tuple[str, str, int]], *, is_driven: bool
) -> tuple[Pin, ...]:
    pins = [Pin(f"{prefix}_tdata", -(-bits // 8) * 8, is_driven)]
    for kind, _, lanes in end_ports:
        pins.append(Pin(f"{prefix}_t{kind}", 1 if kind == "last" else lanes * (width // 8), is_driven))
    return tuple(pins)


def find_stream_breaches(stream: Stream, top_log: Columns, core_log: Columns) -> Iterator[Breach]:
    """Yield the first beat that is lost, duplicated, changed or invented."""
    prefix = stream.pins.prefix
    cycles_at_pins = find_handshakes(top_log, f"{prefix}_tvalid", f"{prefix}_tready")
    pin_beats = [(cycle, _read_pins(stream, top_log, cycle)) for cycle in cycles_at_pins]
    if stream.pins.is_input:
        yield from _find_order_breaches(
            prefix, pin_beats, list(_find_consumed_beats(stream, core_log)), core_log["rst_i"]
        )
    else:
        yield from _find_order_breaches(
            prefix, list(_find_offered_beats(stream, core_log)), pin_beats, core_log["rst_i"]
        )


def find_stream_waits(stream: Stream, top_log: Columns, core_log: Columns) -> Iterator[Breach]:
    """Yield the first cycle in which valid waits for ready: at the pins of an output, at the datapath for an input."""
    prefix, resets = stream.pins.prefix, core_log["rst_i"]
    if stream.pins.is_input:
        valid, ready = (
            [value >> stream.index & 1 for value in core_log[f"{stream.port}_{suffix}"]]
            for suffix in ("valid_i", "ready_o")
        )
        valid_bits, pin = top_log[f"{prefix}_tvalid"], f"{stream.port}_valid_i"
    else:
        valid, ready = top_log[f"{prefix}_tvalid"], top_log[f"{prefix}_tready"]
        valid_bits, pin = core_log[f"{stream.port}_valid_o"], f"{prefix}_tvalid"
    offers = (bool(is_valid and not reset) for is_valid, reset in zip(valid_bits, resets, strict=False))
    yield from find_waits_for_ready(pin, offers, valid, ready)


def _find_order_breaches(
    prefix: str, sent_beats: list[tuple[int, int]], received_beats: list[tuple[int, int]], resets: list[int]
) -> Iterator[Breach]:
    """Yield the first received beat that differs from the sent one; after a reset a few beats may be missing.

    Because beats may be equal, the beats that follow tell how many are missing.
    """
    next_beat_index = 0
    previous_cycle = 0
    for number, (cycle, beat) in enumerate(received_beats):
        was_reset = any(resets[previous_cycle : cycle + 1])
        skips = range(1 + (MAX_BEATS_IN_FLIGHT if was_reset else 0))
        next_beats = _select_until_reset(received_beats[number : number + _COMPARED_BEAT_COUNT], resets)
        skip_count = next(
            (
                skip
                for skip in skips
                if _is_continued(
                    sent_beats[next_beat_index + skip :], next_beats if was_reset else [(cycle, beat)]
                )
            ),
            None,
        )
        if skip_count is None:
            pairs = zip(sent_beats[next_beat_index:], next_beats, strict=False)
            differences = (
                (late_cycle, expected, actual)
                for (_, expected), (late_cycle, actual) in pairs
                if expected != actual
            )
            yield Breach(f"{prefix}_tdata", *next(differences, (cycle, len(sent_beats), len(received_beats))))
            return
        next_beat_index += skip_count + 1
        previous_cycle = cycle
    if sent_beats and len(sent_beats) - next_beat_index > MAX_BEATS_IN_FLIGHT * (1 + sum(resets)):
        yield Breach(f"beats of {prefix}", sent_beats[next_beat_index][0], len(sent_beats), next_beat_index)


def _is_continued(sent_beats: list[tuple[int, int]], received_beats: list[tuple[int, int]]) -> bool:
    """Return whether the received beats are the next sent ones, and none is received before it is sent."""
    pairs = list(zip(sent_beats, received_beats, strict=False))
    return len(pairs) == len(received_beats) and all(
        sent_beat == received_beat and sent_cycle <= received_cycle
        for (sent_cycle, sent_beat), (received_cycle, received_beat) in pairs
    )


def _select_until_reset(beats: list[tuple[int, int]], resets: list[int]) -> list[tuple[int, int]]:
    """Return the first beat, and the beats after it up to the next reset."""
    kept_beats = beats[:1]
    for cycle, beat in beats[1:]:
        if any(resets[kept_beats[-1][0] + 1 : cycle + 1]):
            break
        kept_beats.append((cycle, beat))
    return kept_beats


def _find_consumed_beats(stream: Stream, core_log: Columns) -> Iterator[tuple[int, int]]:
    valid, ready = core_log[f"{stream.port}_valid_i"], core_log[f"{stream.port}_ready_o"]
    for cycle, reset in enumerate(core_log["rst_i"]):
        if not reset and valid[cycle] >> stream.index & ready[cycle] >> stream.index & 1:
            low = stream.index * stream.beat_bits
            data = core_log[f"{stream.port}_data_i"][cycle] >> low & (1 << stream.beat_bits) - 1
            yield cycle, _pack_beat(stream, data, [core_log[port][cycle] for _, port, _ in stream.end_ports])


def _find_offered_beats(stream: Stream, core_log: Columns) -> Iterator[tuple[int, int]]:
    """Yield the beats that the datapath offers, with the cycles in which they appear."""
    valid, ready = core_log[f"{stream.port}_valid_o"], core_log[f"{stream.port}_ready_i"]
    is_new = True
    for cycle, reset in enumerate(core_log["rst_i"]):
        if valid[cycle] and is_new:
            end_values = [core_log[port][cycle] for _, port, _ in stream.end_ports]
            yield cycle, _pack_beat(stream, core_log[f"{stream.port}_data_o"][cycle], end_values)
        is_new = bool(not valid[cycle] or ready[cycle] or reset)


def _read_pins(stream: Stream, top_log: Columns, cycle: int) -> int:
    """Return a beat at the pins in the format of `_pack_beat`; padding bits must be the sign, or 0."""
    prefix = stream.pins.prefix
    data, end_values = top_log[f"{prefix}_tdata"][cycle], []
    if stream.pins.is_input:
        data &= (1 << stream.beat_bits) - 1
    else:
        data = _remove_padding(stream, data)
    for kind, _, lanes in stream.end_ports:
        pin = next(candidate for candidate in stream.pins.payload if candidate.name == f"{prefix}_t{kind}")
        end_values.append(
            _read_lanes(top_log[pin.name][cycle], lanes, pin.width // lanes, stream.pins.is_input)
        )
    return _pack_beat(stream, data, end_values)


def _remove_padding(stream: Stream, data: int) -> int:
    """Return the data bits, with a mark above them if the padding to complete bytes is wrong."""
    bits_of_data = data & (1 << stream.beat_bits) - 1
    is_negative = stream.is_signed and bits_of_data >> (stream.beat_bits - 1) & 1
    padded_bits = -(-stream.beat_bits // 8) * 8
    fill = ((1 << padded_bits - stream.beat_bits) - 1) if is_negative else 0
    return bits_of_data if data >> stream.beat_bits == fill else bits_of_data | 1 << padded_bits + 64


def _read_lanes(value: int, lane_count: int, lane_bits: int, is_input: bool) -> int:
    """Return one bit per lane of `lane_bits` bits; on an output the bits of a lane must agree, otherwise return -1."""
    lane_mask = 0
    for lane in range(lane_count):
        bits = value >> lane * lane_bits & (1 << lane_bits) - 1
        if not is_input and bits not in {0, (1 << lane_bits) - 1}:
            return -1
        lane_mask |= (bits & 1) << lane
    return lane_mask


def _pack_beat(stream: Stream, data: int, end_values: list[int]) -> int:
    """Return data, `last` and `keep` as one number."""
    low = -(-stream.beat_bits // 8) * 8
    for (_, _, lanes), value in zip(stream.end_ports, end_values, strict=True):
        data |= (value & (1 << lanes + 1) - 1) << low
        low += lanes + 1
    return data

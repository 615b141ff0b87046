"""Both ends of the smartNIC's wire, `packet_request` and `packet_answer`, with what lies between them in Python.

`fate` says what has to become of a frame. It knows bytes and the codec of the packet server, and nothing of the RTL.
"""

from __future__ import annotations

import random
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from fpga.count_action.ports import Port, Ports, Rows
from fpga.hdl.design import Design, make_block_design
from lightning.serving.packets.codec import HEADER, MAGIC, Kind, RefusalCode, find_invalid_field

MAC, ADDRESS, PORT = bytes.fromhex("02a1b2c3d4e5"), bytes([10, 1, 2, 3]), 9000
MODELS = {0: 3, 1: 784, 2: 1440, 5: 54, 6: 55, 9: 1, 15: 118, 0x80000001: 64}
"""Inputs of the models in service, by number."""
OUTCOMES = ("ignored", "corrupt", "arp", "ping", "malformed", "unknown_model", "refused")
REQUEST = "request"
LARGEST = 1514

_INPUTS = {
    "mac_i": 48, "address_i": 32, "port_i": 16, "now_us_i": 32, "rx_valid_i": 1, "rx_data_i": 512, "rx_keep_i": 64,
    "rx_last_i": 1, "rx_bad_i": 1, "known_i": 1, "inputs_i": 16, "image_ready_i": 1, "request_ready_i": 1,
    "answer_valid_i": 1, "answer_code_i": 8, "answer_client_i": 96, "answer_model_i": 32, "answer_number_i": 64,
    "answer_arrival_us_i": 32, "answer_class_i": 32, "answer_cycles_i": 64, "answer_scores_i": 9, "answer_sum_i": 16,
    "score_data_i": 512, "tx_ready_i": 1,
}  # fmt: skip
_OUTPUTS = {
    "rx_ready_o": 1, "model_o": 32, "image_write_o": 1, "image_word_o": 5, "image_data_o": 512, "request_valid_o": 1,
    "request_client_o": 96, "request_model_o": 32, "request_inputs_o": 16, "request_number_o": 64,
    "request_deadline_us_o": 32, "request_arrival_us_o": 32, "outcome_o": 7, "received_o": 1, "answer_ready_o": 1,
    "score_word_o": 5, "tx_valid_o": 1, "tx_data_o": 512, "tx_keep_o": 64, "tx_last_o": 1,
}  # fmt: skip
_BETWEEN = {"reply_valid": 1, "reply_ready": 1, "reply": 234, "echo": 512, "echo_next": 1}


def _placed(widths: Mapping[str, int]) -> tuple[Port, ...]:
    ports: list[Port] = []
    for name, width in widths.items():
        ports.append(Port(name, width, ports[-1].column + ports[-1].word_count if ports else 0))
    return tuple(ports)


PORTS = Ports(_placed(_INPUTS), _placed(_OUTPUTS))


def _top() -> str:
    sides = [("input", name, width) for name, width in [("clk_i", 1), ("rst_i", 1), *_INPUTS.items()]]
    sides += [("output", name, width) for name, width in _OUTPUTS.items()]
    ports = ",\n".join(f"  {side} logic [{width - 1}:0] {name}" for side, name, width in sides)
    wires = "".join(f"  logic [{width - 1}:0] {name};\n" for name, width in _BETWEEN.items())
    given = {"reply_ready", "echo_next"}
    request = ", ".join(f".{name}_{'i' if name in given else 'o'}({name})" for name in _BETWEEN)
    answer = ", ".join(f".{name}_{'o' if name in given else 'i'}({name})" for name in _BETWEEN)
    return (
        f"module packet_ends (\n{ports}\n);\n{wires}"
        f"  packet_request u_request (\n.*, {request});\n  packet_answer u_answer (\n.*, {answer});\nendmodule\n"
    )


def packet_ends_design() -> Design:
    """Return both blocks as one design: the replies of the first go to the second."""
    return make_block_design("packet_ends", PORTS, {"packet_ends": _top()})


def ones_sum(message: bytes) -> int:
    """Return the ones' complement sum of a message.

    >>> hex(ones_sum(bytes.fromhex("ffff0001")))
    '0x1'
    """
    padded = message + bytes(len(message) % 2)
    total = sum(struct.unpack(f">{len(padded) // 2}H", padded))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


@dataclass(frozen=True)
class Request:
    """A request as the engine has to get it."""

    client: bytes
    model: int
    number: int
    deadline: int
    payload: bytes


@dataclass(frozen=True)
class Fate:
    """The fate of a frame: `outcome`, and the reply if there is one.

    In replies with a time (refusals), the four bytes at 54 are 0, and so is the checksum of UDP.
    """

    outcome: str
    reply: bytes = b""
    request: Request | None = None


def fate(frame: bytes, *, bad: bool = False, models: Mapping[int, int] = MODELS) -> Fate:
    """Return what has to become of a frame, which has a wrong frame check if it is `bad`."""
    if bad:
        return Fate("corrupt")
    seen = frame + bytes(max(128 - len(frame), 0))
    to, source, ethertype = seen[:6], seen[6:12], seen[12:14]
    if ethertype == b"\x08\x06":
        asks = seen[14:22] == bytes.fromhex("0001080006040001") and seen[38:42] == ADDRESS
        if to not in (MAC, b"\xff" * 6) or not asks or seen[22] & 1:
            return Fate("ignored")
        if not 42 <= len(frame) <= LARGEST:
            return Fate("corrupt")
        answer = bytes.fromhex("0001080006040002") + MAC + ADDRESS + seen[22:32]
        return Fate("arp", (seen[22:28] + MAC + ethertype + answer).ljust(60, b"\0"))
    cannot = source[0] & 1 or seen[26] in (0, 127) or seen[26] >= 224 or seen[26:30] == ADDRESS
    fragment = int.from_bytes(seen[20:22], "big") & 0x3FFF
    if (
        to != MAC
        or ethertype != b"\x08\x00"
        or seen[14] != 0x45
        or fragment
        or seen[30:34] != ADDRESS
        or cannot
    ):
        return Fate("ignored")
    total = int.from_bytes(seen[16:18], "big")
    packet = seen[14 : 14 + total]
    is_whole = 14 + total <= len(frame) <= LARGEST and total >= 28 and ones_sum(packet[:20]) == 0xFFFF
    if seen[23] == 1 and seen[34:36] == b"\x08\x00":
        if not is_whole or ones_sum(packet[20:]) != 0xFFFF:
            return Fate("corrupt")
        # The sum of two words with a carry: by RFC 1624 this is what becomes of a checksum.
        check = struct.pack(">H", ones_sum(packet[22:24] + b"\x08\x00"))
        echo = b"\0\0" + check + packet[24:]
        return Fate("ping", _packet(source, seen[26:30], 1, echo))
    if seen[23] == 17 and seen[34:36] != b"\0\0" and seen[36:38] == struct.pack(">H", PORT):
        pseudo = packet[12:20] + b"\0\x11" + packet[24:26]
        is_right = packet[26:28] == b"\0\0" or ones_sum(pseudo + packet[20:]) == 0xFFFF
        if not is_whole or packet[24:26] != struct.pack(">H", total - 20) or not is_right:
            return Fate("corrupt")
        return _datagram_fate(source + seen[26:30] + seen[34:36], packet[28:], models)
    return Fate("ignored")


def _datagram_fate(client: bytes, datagram: bytes, models: Mapping[int, int]) -> Fate:
    """Return the fate of an inference packet, in the order of `PacketLoop._answer_datagram`."""
    if len(datagram) < HEADER.size:
        return Fate("malformed")
    magic, version, kind, datatype, code, model, deadline, number, fragment, fragments, length, spare = (
        HEADER.unpack_from(datagram)
    )
    flaw = find_invalid_field(
        magic, version, kind, datatype, code, fragment, fragments, length, spare, len(datagram)
    )
    if flaw or kind != Kind.REQUEST:
        is_marked = magic == MAGIC and kind == Kind.REQUEST
        return Fate("malformed", refusal(client, model, number, RefusalCode.MALFORMED) if is_marked else b"")
    if model not in models:
        return Fate("unknown_model", refusal(client, model, number, RefusalCode.UNKNOWN_MODEL))
    if datatype != 1 or fragments != 1 or length != models[model]:
        return Fate("refused", refusal(client, model, number, RefusalCode.INPUT))
    return Fate(REQUEST, request=Request(client, model, number, deadline, datagram[HEADER.size :]))


def refusal(client: bytes, model: int, number: int, code: int) -> bytes:
    """Return the frame of a refusal, without time and checksum."""
    header = HEADER.pack(MAGIC, 1, Kind.REFUSAL, 1, code, model, 0, number, 0, 1, 0, 0)
    return datagram_to(client, header)


def datagram_to(client: bytes, datagram: bytes) -> bytes:
    """Return the frame of a datagram to a client (MAC, IPv4 address and port), without its checksum."""
    header = struct.pack(">H", PORT) + client[10:] + struct.pack(">HH", 8 + len(datagram), 0)
    return _packet(client[:6], client[6:10], 17, header + datagram)


def _packet(to: bytes, address: bytes, protocol: int, content: bytes) -> bytes:
    fixed = (
        struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(content), 0, 0x4000, 64, protocol, 0) + ADDRESS + address
    )
    header = fixed[:10] + struct.pack(">H", 0xFFFF - ones_sum(fixed)) + fixed[12:]
    return (to + MAC + b"\x08\x00" + header + content).ljust(60, b"\0")


@dataclass
class Answer:
    """An answer of the engine, or its refusal with a code."""

    request: Request
    arrival: int
    code: int = 0
    chosen: int = 0
    cycles: int = 0
    scores: bytes = b""

    def frame(self) -> bytes:
        """Return the frame, without time and checksum."""
        if self.code:
            return refusal(self.request.client, self.request.model, self.request.number, self.code)
        message = struct.pack(">IIQ", self.chosen, len(self.scores) // 4, self.cycles) + self.scores
        header = HEADER.pack(
            MAGIC,
            1,
            Kind.ANSWER,
            2,
            0,
            self.request.model,
            0,
            self.request.number,
            0,
            1,
            len(message),
            0,
        )
        return datagram_to(self.request.client, header + message)


@dataclass
class Seen:
    """The events of a run."""

    fates: list[str] = field(default_factory=list)
    """Outcomes and requests in the order in which the RTL decided them."""
    received: int = 0
    requests: list[tuple[Request, int]] = field(default_factory=list)
    """Requests with their time of arrival."""
    answers: list[Answer] = field(default_factory=list)
    """Those that were taken."""
    frames: list[tuple[bytes, int]] = field(default_factory=list)
    """Frames that were sent, each with the time when its last beat was sent."""
    cycles: int = 0
    rows: list[Rows] = field(default_factory=list)
    """What went in, cycle by cycle, for another simulator."""
    outputs: list[Rows] = field(default_factory=list)
    moments: dict[str, list[int]] = field(default_factory=dict)
    """Cycles: of beats (`begin`, `end`), requests (`request`), answers (`answer`) and frames sent (`sent`)."""

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.fates)


@dataclass
class Bench:
    """The two blocks under Verilator, a cycle at a time. The wires of the engine are driven by `chance`."""

    simulator: object
    chance: random.Random
    gaps: float = 0.0
    """Probability of a cycle without a beat that comes in."""
    stalls: float = 0.0
    """Probability of a cycle in which no beat is taken from the output."""
    buffers: int = 1
    """Image buffers."""
    patience: float = 0.9
    """Probability that the engine waits for a cycle before it takes a request or gives an answer."""
    models: Mapping[int, int] = field(default_factory=lambda: MODELS)
    now: int = 0xFFFFFF00
    """Time at the beginning: it wraps soon."""
    tick: float = 0.5
    """Probability that a microsecond passes in a cycle."""

    def run(
        self,
        frames: Iterable[tuple[bytes, bool]],
        answer_of: Callable[[Request, int], Answer] | None = None,
        *,
        limit: int = 400_000,
        keeps: bool = False,
    ) -> Seen:
        """Send frames, each with whether its frame check is wrong, and answer the requests until nothing is left.

        Without `answer_of` the engine answers at random.
        """
        answer_of = answer_of or self._random_answer
        beats = _beats(frames)
        seen = Seen(moments={name: [] for name in ("begin", "end", REQUEST, "answer", "sent")})
        row = np.zeros((1, PORTS.input_column_count), np.uint64)
        inputs = {port.name: slice(port.column, port.column + port.word_count) for port in PORTS.inputs}
        outputs = {port.name: (port.column, port.word_count, port.width) for port in PORTS.outputs}

        def put(name: str, value: int) -> None:
            row[0, inputs[name]] = _words(value, inputs[name].stop - inputs[name].start)

        put("mac_i", int.from_bytes(MAC, "big"))
        put("address_i", int.from_bytes(ADDRESS, "big"))
        put("port_i", PORT)
        image, images = bytearray(32 * 64), 0
        tasks: deque[Answer] = deque()
        answer: Answer | None = None
        place, now, model, word, quiet, was_pending, offering = 0, self.now, 0, 0, 0, False, False
        frame = bytearray()
        answer_is_new = begins = opens = True
        found = np.zeros((1, PORTS.output_column_count), np.uint64)

        def get(name: str) -> int:
            return int(found[0, outputs[name][0]])

        def get_wide(name: str) -> int:
            column, words, width = outputs[name]
            whole = int.from_bytes(found[0, column : column + words].tobytes(), "little")
            return whole & ((1 << width) - 1)

        while quiet < 60:
            assert seen.cycles < limit, "the blocks stand still"
            # What the engine and the wire do in this cycle: a beat that is offered stays.
            if place < len(beats) and not offering:
                offering = self.chance.random() >= self.gaps
            row[0, inputs["rx_valid_i"]] = offering
            if offering:
                data, keep, last, bad = beats[place]
                row[0, inputs["rx_data_i"]] = data
                row[0, inputs["rx_keep_i"]] = keep
                row[0, inputs["rx_last_i"]] = last
                row[0, inputs["rx_bad_i"]] = bad
            takes = self.chance.random() >= self.stalls
            row[0, inputs["tx_ready_i"]] = takes
            row[0, inputs["now_us_i"]] = now
            row[0, inputs["known_i"]] = model in self.models
            row[0, inputs["inputs_i"]] = self.models.get(model, 3)
            row[0, inputs["image_ready_i"]] = images < self.buffers
            accepts = self.chance.random() >= self.patience
            row[0, inputs["request_ready_i"]] = accepts
            if answer is None and tasks and self.chance.random() >= self.patience:
                answer, answer_is_new = tasks.popleft(), True
                put("answer_code_i", answer.code)
                put("answer_client_i", int.from_bytes(answer.request.client, "big"))
                put("answer_model_i", answer.request.model)
                put("answer_number_i", answer.request.number)
                put("answer_arrival_us_i", answer.arrival)
                put("answer_class_i", answer.chosen)
                put("answer_cycles_i", answer.cycles)
                put("answer_scores_i", len(answer.scores) // 4)
                put("answer_sum_i", ones_sum(answer.scores))
            row[0, inputs["answer_valid_i"]] = answer is not None
            if answer is not None:
                if answer_is_new:
                    seen.moments["answer"].append(seen.cycles)
                    answer_is_new = False
                # Behind the scores there may be anything.
                scores = answer.scores[64 * word : 64 * word + 64].ljust(64, b"\x5a")
                put("score_data_i", int.from_bytes(scores, "little"))
            found = self.simulator.run(row)
            if keeps:
                seen.rows.append(row.copy())
                seen.outputs.append(found)

            # What the blocks did in it.
            active = offering
            if offering and get("rx_ready_o"):
                seen.moments["begin"] += [seen.cycles] if opens else []
                seen.moments["end"] += [seen.cycles] if last else []
                opens = last
                place, offering = place + 1, False
            seen.received += get("received_o")
            if get("image_write_o"):
                at = 64 * get("image_word_o")
                image[at : at + 64] = get_wide("image_data_o").to_bytes(64, "little")
            if outcome := get("outcome_o"):
                assert outcome & (outcome - 1) == 0
                seen.fates.append(OUTCOMES[outcome.bit_length() - 1])
            if get("request_valid_o"):
                active = True
                if not was_pending:
                    seen.fates.append(REQUEST)
                    seen.moments[REQUEST].append(seen.cycles)
                was_pending = not accepts
                if accepts:
                    number = get("request_model_o")
                    length = self.models[number]
                    assert get("request_inputs_o") == length
                    words = -(-length // 64) * 64
                    assert not any(image[length:words]), "bytes after the payload are 0"
                    request = Request(
                        get_wide("request_client_o").to_bytes(12, "big"), number, get("request_number_o"),
                        get("request_deadline_us_o"), bytes(image[:length]),
                    )  # fmt: skip
                    image = bytearray(self.chance.randbytes(32 * 64))
                    seen.requests.append((request, get("request_arrival_us_o")))
                    tasks.append(answer_of(request, get("request_arrival_us_o")))
                    images += 1
            if get("answer_ready_o"):
                assert answer is not None
                seen.answers.append(answer)
                answer, images = None, images - 1
            if get("tx_valid_o") and takes:
                if begins:
                    seen.moments["sent"].append(seen.cycles)
                keep = get("tx_keep_o")
                size = keep.bit_length()
                assert keep == (1 << size) - 1
                assert size == 64 or get("tx_last_o")
                beat = get_wide("tx_data_o").to_bytes(64, "little")
                assert not any(beat[size:])
                frame += beat[:size]
                begins = bool(get("tx_last_o"))
                if begins:
                    seen.frames.append((bytes(frame), now))
                    frame = bytearray()
            model, word = get("model_o"), get("score_word_o")
            now = (now + (self.chance.random() < self.tick)) % 2**32
            active = active or bool(get("tx_valid_o")) or bool(tasks) or answer is not None
            quiet = 0 if active or place < len(beats) else quiet + 1
            seen.cycles += 1
        assert not frame
        return seen

    def _random_answer(self, request: Request, arrival: int) -> Answer:
        if self.chance.random() < 0.1:
            return Answer(request, arrival, code=self.chance.choice([3, 5]))
        scores = self.chance.choice([1, 2, 9, 10, 25, 26, 356, self.chance.randrange(1, 357)])
        return Answer(
            request, arrival, 0, self.chance.randrange(scores), self.chance.getrandbits(64),
            self.chance.randbytes(4 * scores),
        )  # fmt: skip


def _words(value: int, words: int) -> Rows:
    return np.frombuffer(value.to_bytes(8 * words, "little"), np.uint64)


def _beats(frames: Iterable[tuple[bytes, bool]]) -> list[tuple[Rows, int, bool, bool]]:
    """Return data, keep, last and bad of every beat. Bytes that are not kept are still what they were before."""
    wire, beats = bytearray(64), []
    for frame, bad in frames:
        for start in range(0, len(frame), 64):
            part = frame[start : start + 64]
            wire[: len(part)] = part
            is_last = start + 64 >= len(frame)
            # Before the last beat the wire for the frame check says nothing.
            says_bad = bad if is_last else bool(start & 64)
            beats.append((np.frombuffer(bytes(wire), np.uint64), (1 << len(part)) - 1, is_last, says_bad))
    return beats

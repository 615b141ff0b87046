"""The whole smartNIC with simulated light and memory: frames in, answers out, and each is checked.

`witnesses.packet_ends.fate` says what has to become of a frame, `fpga.smartnic.reference` what the answer is.
"""

import gzip
import os
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from libraries import skip_without
from needs import needs
from witnesses.packet_ends import ADDRESS, MAC, PORT, REQUEST, fate, ones_sum

from fpga.hdl import explain_missing
from lightning.serving.packets.codec import Kind, RefusalCode, decode_answer, parse

pytestmark = pytest.mark.hdl

KINDS = ("ignored", "corrupt", "arp", "ping", "malformed", "unknown_model", "refused", REQUEST)


@pytest.fixture(scope="module")
@needs("hdl")
def make_nic():
    skip_without("lark", "scapy")
    if reason := explain_missing("verilator", "make", "g++"):
        pytest.skip(reason)
    from fpga.smartnic.simulator import Settings, SmartNic

    def make(design=None, **settings):
        address = ".".join(map(str, ADDRESS))
        settings = Settings(mac=MAC.hex(":"), address=address, port=PORT, **settings)
        # One build of the sound design serves `lightning serve` and `lightning trace`, too.
        return SmartNic(settings, design=design)

    return make


@pytest.fixture
def frames():
    from witnesses.wire_frames import Frames, Scapy

    def make(program, seed=1):
        return Frames(
            Scapy(), seed, {number: model.input_count for number, model in enumerate(program.models)}
        )

    return make


def chain(name, seed, *sizes, published=False, **options):
    """Return a model with weights at random; `scaled` ones have biases, scales and steps."""
    from fpga.smartnic.program import NicLayer, NicModel

    draw = np.random.default_rng(seed)
    layers = []
    for place, (inputs, outputs) in enumerate(pairwise(sizes)):
        last = place == len(sizes) - 2
        weights = draw.integers(-255, 256, (outputs, inputs))
        if published:
            layers.append(NicLayer(weights, np.zeros(outputs, int), np.ones(outputs)))
            continue
        bias, scale = draw.integers(-9000, 9000, outputs), draw.uniform(1e-4, 1e-2, outputs)
        step = 1 if last else draw.uniform(0.02, 0.2)
        layers.append(NicLayer(weights, bias, scale.astype(np.float32), np.float32(step), not last))
    return NicModel(name, tuple(layers), published, **options)


def small_program():
    from fpga.smartnic.program import NicProgram

    return NicProgram((chain("published", 1, 40, 16, 10, published=True), chain("scaled", 2, 50, 20, 4)))


def check(nic, program, sent, *, punctual=True):
    """Check the outcome of every frame, every answer, and the counters. Return the outcomes by name, and refusals.

    An answer that was in time may leave later while the client pauses: it is not `punctual` then.
    """
    from fpga.smartnic.frames import get_payload
    from fpga.smartnic.reference import compute_scores

    models = {number: model.input_count for number, model in enumerate(program.models)}
    fates = [fate(frame, bad=bad, models=models) for frame, bad in sent]
    requests = {each.request.number: each.request for each in fates if each.request}
    assert len(requests) == sum(each.outcome == REQUEST for each in fates)
    replies, failed = Counter(), []
    for _, frame in nic.receive():
        if frame[12:14] == b"\x08\x00" and frame[23] == 17:
            length = frame[38:40]
            assert (
                ones_sum(frame[26:34] + b"\0\x11" + length + frame[34 : 34 + int.from_bytes(length, "big")])
                == 0xFFFF
            )
        packet = (
            parse(get_payload(frame)) if frame[23:24] == b"\x11" and frame[12:14] == b"\x08\x00" else None
        )
        if (
            packet is None
            or packet.request not in requests
            or packet.code not in {0, RefusalCode.LATE, RefusalCode.FAILED}
        ):
            replies[without_time(frame)] += 1
            continue
        request = requests.pop(packet.request)
        if packet.kind is Kind.REFUSAL:
            assert packet.code != RefusalCode.LATE or request.deadline
            failed.append(packet.code)
            continue
        answer = decode_answer(packet.payload)
        model = program.models[request.model]
        expected, chosen = compute_scores(model, np.frombuffer(request.payload, np.uint8))
        assert (packet.model, answer.class_index) == (request.model, chosen)
        assert not punctual or not request.deadline or packet.time_us <= request.deadline + 1
        assert answer.scores.tolist() == expected.tolist()
        assert frame[:6] + frame[30:34] + frame[36:38] == request.client
    assert not requests  # every one was answered or refused, once
    assert replies == Counter(without_time(each.reply) for each in fates if each.reply)
    counters = nic.read_counters()
    assert counters.pop("received") == len(sent) == sum(counters.values())
    outcomes = Counter(each.outcome for each in fates)
    asked = outcomes.pop(REQUEST, 0)
    assert counters["answered"] + counters["late"] + counters["failed"] == asked
    assert {name: counters[name] for name in KINDS[:-1]} == {name: outcomes[name] for name in KINDS[:-1]}
    return Counter({**outcomes, REQUEST: asked}), failed


def without_time(frame):
    """Return a frame whose time and checksum, which follow from when it was sent, are 0."""
    if frame[12:14] != b"\x08\x00" or frame[23] != 17:
        return frame
    return frame[:40] + b"\0\0" + frame[42:54] + b"\0\0\0\0" + frame[58:]


def send_traffic(nic, made, count, chance, kinds=None):
    """Send frames at random with gaps at random. Return them, each with whether its frame check was wrong."""
    sent = []
    for _ in range(count):
        frame, bad = made.any() if kinds is None else (chance.choice(kinds)(), False)
        sent.append((frame, bad))
        nic.send(frame, is_bad=bad, gap=chance.choice([0, 0, 0, 1, 7, chance.randrange(400)]))
    return sent


@pytest.mark.parametrize(
    ("count", "seed"), [(500, 1), *(pytest.param(2500, seed, marks=pytest.mark.long) for seed in range(2, 6))]
)
def test_every_packet_has_its_answer_or_its_outcome(make_nic, frames, count, seed):
    program, chance = small_program(), random.Random(seed)
    latency, pauses = [(0, 0), (13, 0.3), (40, 0), (25, 0.6), (7, 0.1)][seed % 5]
    optics = optics_with(chance)
    nic = make_nic(memory_latency=latency, apart=chance.randrange(256), optics=optics)
    nic.load(program)
    nic.insert_pauses(pauses, pauses / 2, seed)
    sent = send_traffic(nic, frames(program, seed), count, chance)
    assert nic.run_until_idle()
    outcomes, failed = check(nic, program, sent)
    assert failed == []
    assert all(outcomes[kind] >= count / 60 for kind in KINDS)


def optics_with(chance):
    from fpga.photonic_mac import Optics

    return Optics(delay=chance.randrange(16), shift=chance.randrange(16))


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.long)])
def test_an_abort_costs_the_request_in_work_alone(make_nic, frames, count):
    program, chance = small_program(), random.Random(count)
    nic = make_nic()
    nic.load(program)
    made = frames(program)
    sent = send_traffic(nic, made, count, chance, [made.request, made.request, made.ping])
    aborts = 0
    while nic.waiting_frame_count:
        nic.run(chance.randrange(1, 500))
        nic.abort()
        aborts += 1
    assert nic.run_until_idle()
    _, failed = check(nic, program, sent)
    assert set(failed) == {RefusalCode.FAILED}
    assert count / 20 < len(failed) <= aborts


def test_an_abort_in_any_cycle_leaves_no_light_to_the_next_request(make_nic, frames):
    """The light of a preamble is on its way for long, and the weights of the next request are there at once."""
    from fpga.photonic_mac import Optics
    from fpga.smartnic.program import NicProgram

    program = NicProgram((chain("small", 1, 5, 3, 2),))
    nic = make_nic(memory_latency=0, memory_refresh_every=0, optics=Optics(delay=15, shift=15))
    nic.load(program)
    made, sent = frames(program), []
    for cycle in range(160):
        for _ in range(2):
            sent.append((made.request(0), False))
            nic.send(sent[-1][0])
        nic.run(cycle)
        nic.abort()
        assert nic.run_until_idle(100_000)
    _, failed = check(nic, program, sent)
    assert 100 <= len(failed) <= 160
    assert set(failed) == {RefusalCode.FAILED}


@pytest.mark.parametrize("cycles_per_us", [1, 10])
def test_an_answer_has_the_time_since_the_first_beat_of_its_request(make_nic, frames, cycles_per_us):
    program = small_program()
    nic = make_nic(cycles_per_us=cycles_per_us)
    nic.load(program)
    nic.list_arrivals()
    nic.send(frames(program).request(0))
    assert nic.run_until_idle()
    ((end, frame),) = nic.receive()
    (arrival,) = nic.list_arrivals()
    # Between the time and the last beat of the frame lie the checksums and two beats.
    assert 0 <= (end - arrival) / cycles_per_us - parse_answer(frame).time_us <= 10 / cycles_per_us + 1


@pytest.mark.parametrize("count", [40, pytest.param(600, marks=pytest.mark.long)])
def test_another_program_comes_between_two_requests(make_nic, frames, count):
    from dataclasses import replace

    from fpga.smartnic.program import NicProgram

    chance = random.Random(count)
    first = NicProgram((chain("one", 3, 33, 9, 5, published=True, is_scaling_exact=True),))
    second = NicProgram((replace(first.models[0], is_scaling_exact=False),))
    nic = make_nic()
    nic.load(first)
    made = frames(first)
    for turn in range(6):
        program = (first, second)[turn % 2]
        sent = send_traffic(nic, made, count, chance, [made.request])
        # Those of the turn before have been answered: what is asked from here on is answered by this program.
        nic.reload(program)
        assert nic.run_until_idle()
        answers = nic.receive()
        assert len(answers) == len(sent)
    assert nic.read_counters()["answered"] == 6 * count
    assert nic.read_counters()["failed"] == 0


def test_a_reload_waits_for_the_request_in_work_and_holds_the_others(make_nic, frames):
    from fpga.smartnic.program import NicProgram

    first = NicProgram((chain("one", 3, 64, 60, 5, published=True),))
    second = NicProgram((chain("one", 4, 64, 60, 5, published=True),))
    nic = make_nic()
    nic.load(first)
    made = frames(first)
    sent = [(made.request(), False) for _ in range(3)]
    for frame, _ in sent:
        nic.send(frame)
    nic.run(150)
    nic.reload(second)  # the first is in work, the second has begun with it: both end; the third waits
    assert nic.run_until_idle()
    check_by = {
        number: request_answer(sent[number][0], first if number < 2 else second) for number in range(3)
    }
    got = [decode_answer(parse_answer(frame).payload).scores.tolist() for _, frame in nic.receive()]
    assert got == [check_by[number] for number in range(3)]


def request_answer(frame, program):
    from fpga.smartnic.reference import compute_scores

    payload = np.frombuffer(frame[74 : 74 + program.models[0].input_count], np.uint8)
    return compute_scores(program.models[0], payload)[0].tolist()


def parse_answer(frame):
    from fpga.smartnic.frames import get_payload

    return parse(get_payload(frame))


def test_light_that_does_not_come_back_fails_a_request_and_then_works_again(make_nic, frames):
    program = small_program()
    nic = make_nic(limit=3000)
    nic.load(program)
    nic.set_input("optics_gain", 0)
    made = frames(program)
    sent = [(made.request(), False) for _ in range(3)]
    for frame, _ in sent:
        nic.send(frame)
    assert nic.run_until_idle()
    nic.set_input("optics_gain", 256)
    sent.append((made.request(), False))
    nic.send(sent[-1][0])
    assert nic.run_until_idle()
    _, failed = check(nic, program, sent)
    assert failed == [RefusalCode.FAILED] * 3


@pytest.mark.parametrize("blocked", [0, 0.99])
def test_an_error_of_the_memory_fails_the_request_that_reads_it_and_no_other(make_nic, frames, blocked):
    from fpga.smartnic.program import NicProgram, pack_models
    from fpga.smartnic.simulator import MEMORY_WORDS

    program = NicProgram((chain("sound", 1, 5, 3, 2), chain("beyond", 2, 5, 3, 2)))
    rows = pack_models(program)
    rows[1, 0] += np.uint64(MEMORY_WORDS - program.model_bases[1])
    nic = make_nic()
    nic.load(program)
    nic.write_table(0, rows)
    nic.insert_pauses(transmit_share=blocked)  # then the words are read long before their request runs
    made, chance = frames(program), random.Random(1)
    sent = send_traffic(nic, made, 40, chance, [lambda: made.request(0), lambda: made.request(1)])
    assert nic.run_until_idle()
    beyond = sum(frame[53] for frame, _ in sent)
    assert 10 < beyond < 30
    _, failed = check(nic, program, sent)
    assert failed == [RefusalCode.FAILED] * beyond


@pytest.mark.parametrize(
    "seed", [1, 3, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 40))]
)
def test_counters_add_up_and_answers_are_right_whatever_comes_between(make_nic, frames, seed):
    """Aborts, holds, deadlines, limits, pauses of the client, and a model outside the memory, all at random."""
    from fpga.smartnic.program import NicProgram, pack_models
    from fpga.smartnic.simulator import MEMORY_WORDS

    beyond = 3
    program = NicProgram(
        (
            chain("scaled", 1, 5, 3, 2),
            chain("perfect", 2, 20, 4, 3, published=True, is_scaling_exact=True),
            chain("single", 4, 1, 1),
            chain("beyond", 3, 9, 4),
        )
    )
    rows = pack_models(program)
    rows[beyond, 0] += np.uint64(MEMORY_WORDS - program.model_bases[beyond])
    chance = random.Random(seed)
    nic = make_nic(
        memory_latency=chance.choice([0, 3, 40, 255]), memory_refresh_every=30,
        memory_refresh_cycles=chance.randrange(29), cycles_per_us=chance.choice([1, 5]),
        limit=chance.choice([400, 100_000]), apart=chance.randrange(256), optics=optics_with(chance),
    )  # fmt: skip
    nic.load(program)
    nic.write_table(0, rows)
    made, sent = frames(program, seed), []
    for _ in range(200):
        nic.insert_pauses(
            chance.choice([0, 0.5]), chance.choice([0, 0, 0.9, 0.99]), chance.randrange(1 << 20)
        )
        deadline = chance.choice([0, 0, chance.randrange(1, 300)])
        kinds = [lambda deadline=deadline: made.request(deadline=deadline)]
        sent += send_traffic(nic, made, chance.randrange(6), chance, kinds)
        for _ in range(chance.randrange(4)):
            nic.run(chance.randrange(200))
            chance.choice([nic.abort, nic.hold, lambda: nic.hold(is_held=False)])()
    nic.hold(is_held=False)
    nic.insert_pauses()
    assert nic.run_until_idle()
    outcomes, codes = check(nic, program, sent, punctual=False)
    failed = codes.count(RefusalCode.FAILED)
    assert set(codes) == {RefusalCode.LATE, RefusalCode.FAILED}
    assert 50 < failed < outcomes[REQUEST] * 2 / 3
    assert len(codes) >= sum(frame[53] == beyond for frame, _ in sent)


def test_a_request_of_another_size_is_refused_whenever_the_table_changes(make_nic, frames):
    from fpga.smartnic.program import NicProgram, pack_layers, pack_memory, pack_models

    first = NicProgram((chain("small", 1, 20, 3, 2),))
    second = NicProgram((chain("large", 2, 40, 3, 2),))
    made, nic, codes = frames(first), make_nic(), []
    for offset in range(20):
        nic.load(first)
        nic.hold()
        nic.send(made.request(0))
        nic.run(offset)
        nic.write_table(0, pack_models(second)[:1])
        nic.write_table(1, pack_layers(second))
        nic.write_memory(pack_memory(second))
        nic.hold(is_held=False)
        assert nic.run_until_idle(100_000)
        codes += [parse_answer(frame).code for _, frame in nic.receive()]
    assert codes == sorted(codes)  # refused when it comes in, and from some cycle on when it would begin
    assert set(codes) == {RefusalCode.INPUT, RefusalCode.FAILED}


def test_a_request_that_is_too_late_is_refused_before_or_after_its_run(make_nic, frames):
    program = small_program()
    nic = make_nic(cycles_per_us=10)
    nic.load(program)
    made = frames(program)
    # 3 us are 30 cycles. The first two begin at once, and are late when they end; the third is late before it begins.
    sent = [
        (made.request(0, deadline=3), False),
        (made.request(0, deadline=3), False),
        (made.request(0, deadline=3), False),
        (made.request(1, deadline=0), False),
    ]
    for frame, _ in sent:
        nic.send(frame)
    assert nic.run_until_idle()
    _, failed = check(nic, program, sent)
    assert failed == [RefusalCode.LATE] * 3
    assert nic.read_counters()["late"] == 3


def test_loss_of_light_is_made_up_for(make_nic, frames):
    program = small_program()
    made = frames(program)
    frame = made.request(0)
    from fpga.photonic_mac import Optics

    found = {}
    for gain, factor in ((256, 128), (128, 128), (128, 256)):
        nic = make_nic(optics=Optics(gain=gain), loss_factor=factor)
        nic.load(program)
        nic.send(frame)
        assert nic.run_until_idle()
        found[gain, factor] = decode_answer(parse_answer(nic.receive()[0][1]).payload).scores
    exact = found[256, 128]
    assert np.abs(found[128, 256] - exact).max() < np.abs(found[128, 128] - exact).max() / 10


@pytest.fixture
def lenet():
    """Return LeNet-300-100 with the published weights, and MNIST's test images."""
    from fpga.photonic_mac import quantise
    from fpga.smartnic.program import NicLayer, NicModel

    if not os.environ.get("LIGHTBED_DATA"):
        pytest.skip("needs LIGHTBED_DATA: the folder with mnist/ and lenet/ of the measurements")
    data = Path(os.environ["LIGHTBED_DATA"])
    with np.load(data / "lenet" / "lenet_w.npz") as weights:
        network = quantise([weights[name] for name in ("w1", "w2", "w3")])
    layers = tuple(NicLayer(each, np.zeros(len(each), int), np.ones(len(each))) for each in network.layers)
    images = gzip.decompress((data / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes())
    return NicModel("lenet", layers, True), np.frombuffer(images, np.uint8, offset=16).reshape(-1, 784)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", [6, pytest.param(10_000, marks=pytest.mark.long)])
def test_lenet_and_a_chain_with_biases_answer_like_the_integer_model(make_nic, frames, lenet, count):
    from fpga.photonic_mac import Network, layer_results
    from fpga.smartnic.program import NicProgram

    model, images = lenet
    program = NicProgram((model, chain("scaled", 5, 60, 30, 10)))
    nic = make_nic()
    nic.load(program)
    made, sent = frames(program), []
    for number in range(count):
        frame = made.request(0, payload=images[number % len(images)].tobytes())
        sent.append((frame, False))
        nic.send(frame)
        if number % 10 == 0:
            sent.append((made.request(1), False))
            nic.send(sent[-1][0])
    assert nic.run_until_idle(40_000 * count)
    outcomes, failed = check(nic, program, sent)
    assert (outcomes[REQUEST], failed) == (len(sent), [])
    # The reference is that of the published datapath, too.
    from fpga.smartnic.reference import compute_scores

    network = Network(tuple(layer.weights.astype(np.int32) for layer in model.layers))
    first = images[: min(count, 20)]
    expected = layer_results(network, first)[-1]
    assert [compute_scores(model, image)[0].tolist() for image in first] == expected.tolist()


@pytest.mark.translates
def test_a_trace_has_every_count_and_target_of_a_request(make_nic, frames):
    from fpga.smartnic.frames import get_payload
    from fpga.smartnic.request_trace import trace_request

    program = small_program()
    nic = make_nic()
    nic.load(program)
    request = trace_request(nic, frames(program).request(0))
    answer = decode_answer(parse(get_payload(request.answer)).payload)
    assert answer.scores.shape == (10,)
    (end,) = np.flatnonzero(request.trace.fires["layers.layer"])
    assert answer.cycles == end - request.layer_start_cycles[0] + 1
    assert request.trace.signals["rx_valid"][0]
    assert request.trace.signals["tx_last"][-1]
    assert len(request.layer_start_cycles) == 2
    # 40-16-10 takes 3 words for each of 16 outputs, then 1 for each of 10.
    assert request.count_fires() == {
        "sequencer.head": 2, "sequencer.row": 26, "sequencer.send": 2, "sequencer.results": 2,
        "accumulator.beats": 26, "layers.layer": 1, "latency.cycles": 0,
    }  # fmt: skip
    last = {name: int(target[-1]) for name, target in request.find_targets().items()}
    assert (last["sequencer.row"], last["sequencer.send"], last["sequencer.results"]) == (1, 10, 10)
    assert all(
        not target[: request.layer_start_cycles[0]].any() for target in request.find_targets().values()
    )


FAULTS = [
    # block, what stands there, what is planted
    ("request_engine", "if (ends) begin\n        running_q ", "if (running_q && finished) begin\n        running_q "),
    ("request_engine", "begin_q         <= !run_q;\n      end\n    end", "end\n    end"),
    ("request_engine", ".write_bank_i(receive_q)", ".write_bank_i(!receive_q)"),
    ("request_engine", ".read_bank_i(run_q)", ".read_bank_i(begin_q)"),
    ("request_engine", ".rst_i(rst_i || fails)", ".rst_i(rst_i)"),
    ("request_engine", "begin_deadline != '0 && now", "now"),
    ("request_engine", "else end_code = is_late ? Late : Answered", "else end_code = Answered"),
    ("request_engine", "model[77:72] + {2'd0, layer_o}", "{2'd0, layer_o}"),
    ("request_engine", "!answer_full_q[write_q] && !is_restarting", "!is_restarting"),
    ("streamed_inference", "take && counts_o[47:32] == '0", "take"),
    ("streamed_inference", "wrap_i ? {{8{result[15]}}, result[15:0]}", "wrap_i ? {8'd0, result[15:0]}"),
    ("streamed_inference", "rectified && product[31] ? '0", "1'b0 ? '0"),
    ("streamed_inference", "published_i ? highest : 5'd7", "highest"),
    ("streamed_inference", ".beat_i(take_q[Reading])", ".beat_i(1'b1)"),
    ("score_buffers", "score_i[31] ? score_i ^ 32'h7FFF_FFFF", "1'b0 ? score_i"),
    ("score_buffers", "{15'd0, folded[16]}", "16'd0"),
    ("score_buffers", "!best_rank[31] && best_rank != '0", "!best_rank[31]"),
    ("image_buffers", "read_row_i[1:0]", "read_row_i[2:1]"),
    ("loss_compensator", "product_q[14:7] : 8'd255", "product_q[14:7] : product_q[14:7]"),
    ("modulator_delay", "shift_i", "delay_i"),
]  # fmt: skip


CARRIES = 7
"""Number of the model `carries`."""


def weights_for(score):
    """Return 64 weights whose products with full light add up to a score: (255 * w) >> 8 is w - 1."""
    weights = np.clip(score - 254 * np.arange(64), 0, 254)
    return np.where(weights > 0, weights + 1, 0)


def corner_program():
    """Return models at the edges of the datapath, each by what is special about it."""
    from dataclasses import replace

    from fpga.smartnic.program import NicLayer, NicModel, NicProgram

    first, end = chain("rectified", 8, 30, 12, 6).layers
    hidden, last = chain("dim", 10, 30, 12, 6).layers
    wide, ones = NicLayer(np.full((1, 1024), 255), [0], [1]), [1, 1]
    return NicProgram(
        (
            chain("single", 7, 20, 1),
            NicModel("rectified", (first, replace(end, has_relu=True))),
            chain("perfect", 9, 17, 9, 3, published=True, is_scaling_exact=True),
            NicModel("wraps", (wide, NicLayer([[255], [-255]], [0, 0], ones)), True, True),
            NicModel("dim", (replace(hidden, step=np.float32(9 * hidden.step)), last)),
            NicModel("negative", (NicLayer([[-9] * 30, [-99] * 30, [-8] * 30], [0] * 3, [1] * 3),), True),
            NicModel("dark", (NicLayer([[0] * 30], [0], [1]),), True),
            # Full light gives the scores 4303 and 15999: the ones' complement sum of their bytes carries twice.
            NicModel("carries", (NicLayer([weights_for(4303), weights_for(15999)], [0, 0], ones),), True),
            NicModel("most scores", (NicLayer(np.arange(356)[:, None] % 255, [0] * 356, [1] * 356),), True),
            chain("most activations", 11, 9, 1024, 3),
        )
    )


def test_models_at_the_edges_of_the_datapath(make_nic, frames):
    program, chance = corner_program(), random.Random(11)
    nic = make_nic(memory_latency=3, memory_refresh_every=37, memory_refresh_cycles=9)
    nic.load(program)
    made = frames(program)
    sent = send_traffic(nic, made, 120, chance, edge_kinds(made))
    assert nic.run_until_idle()
    assert check(nic, program, sent)[1] == []


def edge_kinds(made, first=0):
    """Return what makes requests for the models of `corner_program`, which are numbered from `first`."""
    full = bytes([255] * 64)
    return [made.request, made.request, lambda: made.request(first + CARRIES, payload=full)]


def finds_a_fault(make_nic, frames, design):
    """Return whether a NIC of this design does something wrong with packets, aborts, lateness or weak light."""
    from fpga.photonic_mac import Optics
    from fpga.smartnic.program import NicLayer, NicModel, NicProgram
    from fpga.smartnic.simulator import SmartNicError

    program = NicProgram((*small_program().models, *corner_program().models))
    try:
        nic = make_nic(design=design, apart=0x25, cycles_per_us=50, memory_latency=3, memory_refresh_every=37,
                       memory_refresh_cycles=9, optics=Optics(gain=200), loss_factor=164)  # fmt: skip
        nic.set_input("optics_gain", 256)
        nic.set_input("loss_factor", 128)
        nic.load(program)
        chance, made = random.Random(5), frames(program)
        sent = send_traffic(
            nic,
            made,
            450,
            chance,
            [*edge_kinds(made, 2), lambda: made.request(deadline=chance.randrange(12))],
        )
        for _ in range(60):
            nic.run(chance.randrange(1, 900))
            nic.abort()
        assert nic.run_until_idle(3_000_000)
        _, codes = check(nic, program, sent)
        assert {RefusalCode.LATE, RefusalCode.FAILED} == set(codes)
        # Answers that wait longer than the next ones take.
        nic = make_nic(design=design)
        nic.load(program)
        nic.insert_pauses(transmit_share=0.985)
        sent = send_traffic(nic, frames(program), 60, chance, [lambda: made.request(2)])  # one score
        assert nic.run_until_idle(3_000_000)
        assert check(nic, program, sent)[1] == []
        # An inference of some 2,000 cycles that is ended in the middle, before one that must be right.
        long = NicModel("long", (NicLayer(np.full((30, 1024), 1), [0] * 30, [1] * 30),), True)
        program = NicProgram((*program.models, long))
        nic = make_nic(design=design)
        nic.load(program)
        made, sent = frames(program), []
        for cycles in range(300, 1500, 200):
            for model in (len(program.models) - 1, 1):
                sent.append((made.request(model), False))
                nic.send(sent[-1][0])
            nic.run(cycles)
            nic.abort()
            assert nic.run_until_idle(100_000)
        assert check(nic, program, sent)[1] == [RefusalCode.FAILED] * 6
        # All light, of which more comes back than was sent.
        nic = make_nic(design=design, optics=Optics(gain=256), loss_factor=256)
        full = NicModel("full", (NicLayer(np.full((2, 16), 255), [0, 0], [1, 1]),), True)
        nic.load(NicProgram((full,)))
        nic.send(frames(NicProgram((full,))).request(0, payload=bytes([200] * 16)))
        assert nic.run_until_idle(100_000)
        answer = decode_answer(parse_answer(nic.receive()[0][1]).payload)
        assert answer.scores.tolist() == [16 * 255] * 2
    except (AssertionError, SmartNicError, IndexError):
        return True
    return False


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("block", "sound", "fault"), [pytest.param("", "", "", id="sound"), *FAULTS])
def test_a_planted_fault_is_found(make_nic, frames, block, sound, fault):

    from fpga.hdl.design import make_block_design

    given = {}
    if block:
        text = dict(make_block_design(block).sources)[f"{block}.sv"]
        assert text.count(sound) >= 1
        place = text.rindex(sound)  # the declaration of a port comes before its use
        given[block] = text[:place] + fault + text[place + len(sound) :]
    design = make_block_design("smartnic_loopback", texts_by_name=given)
    assert finds_a_fault(make_nic, frames, design) == bool(block)


def test_a_model_for_which_the_memory_has_no_room_is_refused_by_name(make_nic):
    from fpga.smartnic.program import NicLayer, NicModel, NicProgram
    from fpga.smartnic.simulator import SmartNicError

    square = NicLayer(np.ones((1024, 1024), np.int16), np.zeros(1024, int), np.ones(1024))
    end = NicLayer(np.ones((10, 1024), np.int16), np.zeros(10, int), np.ones(10))
    models = [NicModel(name, (square, square, end), True) for name in ("first", "second", "third")]
    with pytest.raises(SmartNicError, match="second: with it the weights take"):
        make_nic().load(NicProgram(tuple(models)))


@pytest.mark.parametrize("gain", [256, 200, 128])
def test_a_request_calibrates_the_loss_of_light(make_nic, frames, gain):
    from fpga.photonic_mac import Optics
    from fpga.smartnic.calibration import CALIBRATION_INPUT, find_loss_factor, make_calibration_model
    from fpga.smartnic.program import NicProgram
    from fpga.smartnic.reference import compute_scores

    program = NicProgram((chain("published", 1, 40, 16, 10, published=True), make_calibration_model()))
    nic = make_nic(optics=Optics(gain=gain, noise=True, seed=gain))
    nic.load(program)
    made = frames(program)

    def ask(*arguments, **fields):
        nic.send(made.request(*arguments, **fields))
        assert nic.run_until_idle()
        return decode_answer(parse_answer(nic.receive()[0][1]).payload).scores

    (score,) = ask(1, payload=CALIBRATION_INPUT)
    factor = find_loss_factor(score)
    assert factor == pytest.approx(128 * 256 / gain, rel=0.02)
    nic.set_input("loss_factor", factor)
    (again,) = ask(1, payload=CALIBRATION_INPUT)
    assert again == pytest.approx(254 * 1024, rel=0.01)
    image = bytes(range(40, 80))
    exact, _ = compute_scores(program.models[0], np.frombuffer(image, np.uint8))
    assert np.abs(ask(0, payload=image) - exact).max() < 0.15 * np.abs(exact).max()


def test_too_little_light_cannot_be_made_up_for():
    from fpga.smartnic.calibration import find_loss_factor

    with pytest.raises(ValueError, match="less than an eighth"):
        find_loss_factor(254 * 1024 / 9)

"""The modules of the library that count tokens and packets, as facts."""


def samples(beat: int, lanes: int, bits: int) -> list[int]:
    """Return the lanes of a beat."""
    return [beat >> place * bits & (1 << bits) - 1 for place in range(lanes)]


def beat_of(values, bits: int) -> int:
    """Return numbers as the lanes of a beat."""
    return sum(value << place * bits for place, value in enumerate(values))


def test_the_bucket_lets_a_burst_pass_and_then_one_packet_a_period(play):
    driven = {"packet_valid_i": [0] * 10 + [1] * 13, "packet_data_i": range(23)}
    played = play("token_bucket", driven, 23, period=4, burst=2, bits=8)
    assert played.count("tokens.tokens")[:11] == [0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2]
    taken = [cycle for cycle, ready in enumerate(played["packet_ready_o"]) if ready]
    assert taken == [10, 11, 13, 17, 21]  # two that were kept, then one a period
    assert played.beats("gate_passed") == taken


def test_a_full_bucket_keeps_no_more_tokens_and_says_so(play):
    played = play("token_bucket", {}, 20, period=4, burst=3)
    assert played.count("tokens.tokens") == [0] * 5 + [1] * 4 + [2] * 4 + [3] * 7
    assert played["saturated_o"] == [0] * 17 + [0b10] * 3


def test_the_parser_sends_the_payload_of_wanted_packets_with_its_ends(play):
    # Two beats of a wanted packet, one of another kind, a header alone, and three wanted beats.
    packets = [
        [(1, 7, 2), (10, 11, 12)],
        [(9, 1, 1), (20, 21, 22)],
        [(1, 5, 0)],
        [(1, 8, 3), (30, 0, 0), (31, 1, 0)],
    ]
    beats = [beat for packet in packets for beat in packet]
    ends = [int(place == len(packet) - 1) for packet in packets for place in range(len(packet))]
    keeps = [7, 7, 7, 7, 7, 7, 7, 3]
    driven = {
        "packet_valid_i": [1] * 8, "packet_data_i": [beat_of(each, 8) for each in beats],
        "packet_last_i": ends, "packet_keep_i": keeps,
    }  # fmt: skip
    played = play("header_parser", driven, 11, lanes=3)
    body = {
        name: played[f"header_parser_body_{name}_o"]
        for name in ("valid", "data", "last", "keep")
    }  # fmt: skip
    sent = [each[1:] for each in zip(*body.values(), strict=True) if each[0]]
    assert sent == [
        (beat_of((10, 11, 12), 8), 1, 7), (beat_of((30, 0, 0), 8), 0, 7), (beat_of((31, 1, 0), 8), 1, 3),
    ]  # fmt: skip
    assert [c for c, found in enumerate(played["header_parser_found_o"]) if found] == [1, 5, 6]
    assert played["header_parser_source_o"] == [0] + [7] * 4 + [5] + [8] * 5
    assert played["header_parser_length_o"] == [0] + [2] * 4 + [0] + [3] * 5
    assert played.count("header_parser.other")[-1] == 1


def test_the_assembler_numbers_packets_and_beats_and_marks_the_last(play):
    results = [11, 12, 13, 14, 15, 16]
    driven = {
        "result_valid_i": [1, 1, 0, 1, 1, 1, 1], "result_data_i": [11, 12, 0, 13, 14, 15, 16],
        "flush_i": [0, 0, 0, 0, 1, 0, 0],
        "packet_assembler_packet_ready_i": [1, 1, 1, 1, 1, 1, 1, 0, 1, 1],
    }  # fmt: skip
    played = play("packet_assembler", driven, 10, lanes=1, beats=3)
    ready = driven["packet_assembler_packet_ready_i"]
    names = ("valid", "data", "last")
    shown = zip(*(played[f"packet_assembler_packet_{name}_o"] for name in names), ready, strict=True)
    sent = [(samples(data, 3, 8), last) for valid, data, last, taken in shown if valid and taken]
    heads = [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1)]
    assert sent == [
        ([*head, result], int(head in {(0, 2), (1, 0)})) for head, result in zip(heads, results, strict=True)
    ]


def test_the_arbiter_gives_turns_in_a_circle_to_those_who_ask(play):
    requests = [{1, 3}, {1, 3}, {1, 3}, set(), {0, 1, 2, 3}, {0, 1, 2, 3}, {2}, {2}, {0, 2, 3}]
    played = play("round_robin_arbiter", {"request_i": [sum(1 << i for i in each) for each in requests]}, 10)
    assert played["round_robin_arbiter_owner_o"] == [0, 1, 3, 1, 1, 2, 3, 2, 2, 3]
    assert played["round_robin_arbiter_granted_o"] == [0, 1, 1, 1, 0, 1, 1, 1, 1, 1]


def test_the_arbiter_is_fair(play):
    played = play("round_robin_arbiter", {"request_i": [0b10111] * 16}, 17, clients=5)
    assert played["round_robin_arbiter_owner_o"][1:] == [1, 2, 4, 0] * 4

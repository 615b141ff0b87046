"""Blocks with a fault each, and the assertion that has to notice it; tops with a fault in their wiring, likewise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fpga.formal.blocks import (
    BLOCK_PROOFS,
    RTL,
    BlockProof,
    read_checks_sources,
    read_instantiated_sources,
    write_proof,
)


@dataclass(frozen=True)
class Mutant:
    """A piece of a block replaced by another, and the assertion of its checks that fails then."""

    block: str
    old: str
    new: str
    assertion: str
    which: int = -1
    """Index among the proven parameters of the block."""

    @property
    def proven(self) -> BlockProof:
        return [each for each in BLOCK_PROOFS if each.block == self.block][self.which]

    def text(self, name: str) -> str:
        sound = (RTL / f"{self.block}.sv").read_text(encoding="ascii")
        assert sound.count(self.old) == 1, f"{self.old!r} stands once in {self.block}"
        return sound.replace(self.old, self.new).replace(f"module {self.block} ", f"module {name} ")


MUTANTS = (
    Mutant("count_action_memory", "words_q[place] = '0", "words_q[place] = '1", "begins"),
    Mutant("count_action_memory", "load_i || stores", "(load_i && !rst_i) || stores", "loads"),
    Mutant("count_action_memory", "store_i && !load_i &&", "store_i &&", "loads"),
    Mutant("count_action_memory", "? store_word_i :", "? load_word_i :", "stores"),
    Mutant("count_action_memory", "? store_address_i :", "? load_address_i :", "stores"),
    Mutant("count_action_memory", "!load_i && !rst_i", "!load_i", "keeps"),
    Mutant("count_action_memory", "if (allowed) words_q", "words_q", "keeps"),
    Mutant("count_action_memory", "words_q[read_address_i]", "words_q[address]", "reads"),
    Mutant(
        "count_action_memory", "loaded_q <= words_q[address]", "loaded_q <= words_q[read_address_i]", "shows"
    ),
    Mutant("count_action_memory", "if (rst_i) number_known_q <= 1'b0;\n    else if", "if", "resets"),
    Mutant("count_action_memory", "number_known_q <= read_inside_i", "number_known_q <= 1'b1", "outside"),
    Mutant("count_action_memory", "if (read_i) number_q", "number_q", "holds"),
    Mutant("count_action_memory", "loaded_known_q <= allowed", "loaded_known_q <= 1'b1", "beyond"),
    Mutant("count_action_memory", "else if (!busy) loaded_known_q", "else loaded_known_q", "waits"),
    Mutant(
        "count_action_buffer", "valid_q <= waits || full_q || comes", "valid_q <= waits || full_q", "holds"
    ),
    Mutant(
        "count_action_buffer", "full_q  <= waits && (full_q || comes)", "full_q  <= waits && comes", "fills"
    ),
    Mutant("count_action_buffer", "ready_q <= !(waits && (full_q || comes))", "ready_q <= 1'b1", "accepts"),
    Mutant("count_action_buffer", "full_q   <= 1'b0", "full_q   <= 1'b1", "empties"),
    Mutant("count_action_buffer", "if (full_q && !waits) first_q", "if (full_q) first_q", "keeps"),
    Mutant("count_action_buffer", "first_q <= second_q", "first_q <= data_i", "follows"),
    Mutant(
        "count_action_buffer",
        "else if (comes && !waits) first_q",
        "else if (comes && waits) first_q",
        "passes",
    ),
    Mutant("count_action_buffer", "else if (comes && !waits) first_q", "else if (!waits) first_q", "shows"),
    Mutant("count_action_buffer", "if (comes && waits) second_q", "if (waits) second_q", "orders"),
    Mutant("count_action_buffer", "if (comes && waits) second_q", "if (comes && !waits) second_q", "stores"),
    Mutant("count_action", "(AtLeast && is_above", "(is_above", "fires", 1),
    Mutant("count_action", "((base | increment) & ~target)", "1'b0", "fires", 1),
    Mutant("count_action", "(wanted << 1)", "wanted", "fires", 2),
    Mutant("count_action", "enable_i && !stall_i &&", "enable_i &&", "fires", 1),
    Mutant("count_action", "enable_i && !stall_i &&", "!stall_i &&", "fires", 1),
    Mutant("count_action", "is_full ? '1 :", "1'b0 ? '1 :", "counts_on", 1),
    Mutant("count_action", "is_full ? count_q :", "1'b0 ? count_q :", "counts_on", 3),
    Mutant("count_action", "rst_i || clear_i || (fire_o", "rst_i || clear_i || (1'b0", "restarts", 1),
    Mutant("count_action", "rst_i || clear_i || (fire_o", "clear_i || (fire_o", "resets", 1),
    Mutant("count_action", "rst_i || clear_i || (fire_o", "rst_i || (fire_o", "clears", 1),
    Mutant("count_action", "rst_i || clear_i || (fire_o", "rst_i || clear_i || (counts", "conserves", 1),
    Mutant("count_action", "(overshoot_q && !clear_status_i)", "1'b0", "overshoots", 1),
    Mutant("count_action", "(saturated_q && !clear_status_i)", "1'b0", "saturates", 1),
    Mutant("count_action", "fire_o ? difference[ValueWidth-1:0]", "fire_o ? '0", "carries", 4),
    Mutant("count_action", "(is_equal || (AtLeast", "((is_equal && !AtLeast) || (AtLeast", "fires", 5),
    Mutant("count_action", "counts && !AtLeast && is_above", "counts && is_above", "overshoots", 5),
    Mutant("count_action", "base >= target", "base > target", "overshoots", 3),
    Mutant("count_action", "(Carry || !fire_o) && is_full", "(Carry || !fire_o) && 1'b0", "saturates", 3),
    Mutant("count_action_level", "enable_i && !stall_i", "enable_i", "fires", 0),
    Mutant("count_action_level", "(borrow[i-1] & (second", "(borrow[i-1] | (second", "fires", 0),
    Mutant("count_action_level", "is_reached && (target_i != '0)", "is_reached", "fires", 1),
    Mutant("count_action_level", "first + second >= target", "first + second > target", "fires", 2),
    Mutant(
        "count_action_up_down",
        "value >= target : value == target",
        "value > target : value == target",
        "fires",
        0,
    ),
    Mutant("count_action_store", "if (rst_i)", "if (rst_i && fire_i)", "resets", 0),
    Mutant("count_action_store", "number_q <= data_i", "number_q <= ~data_i", "stores", 0),
    Mutant("count_action_store", "else if (fire_i)", "else", "holds", 0),
    Mutant("count_action_up_down", "(up_i != down_i)", "(up_i > down_i)", "counts_on", 0),
    Mutant("count_action_up_down", "bound < Largest ? bound : Largest", "Largest", "counts_on", 0),
    Mutant("count_action_up_down", "rest[Wide-1] ? Zero : ", "", "counts_on", 0),
    Mutant(
        "count_action_up_down", "Carry ? value - target : Zero", "Carry ? value : Zero", "goes_on_after", 0
    ),
    Mutant("count_action_up_down", "if (rst_i || clear_i) count_q", "if (rst_i) count_q", "clears", 0),
    Mutant("count_action_up_down", "if (rst_i || clear_i) count_q", "if (clear_i) count_q", "resets", 0),
    Mutant("count_action_up_down", "counts && (held != rest)", "counts && (rest > limit)", "saturates", 0),
    Mutant("count_action_up_down", "(value > target) && !AtLeast", "(value > target)", "overshoots", 0),
    Mutant(
        "count_action_targets",
        "target_q <= shadow_i",
        "target_q[Width-2:0] <= shadow_i[Width-2:0]",
        "commits",
    ),
    Mutant("count_action_targets", "if (commit_i)", "if (commit_i || shadow_i == '1)", "holds"),
    Mutant("count_action_targets", "target_q <= Reset", "target_q <= '0", "begins"),
    Mutant("count_action_beat", "fire_i || stalled_o", "fire_i", "stays"),
    Mutant("count_action_beat", "fire_i || stalled_o", "fire_i || valid_q", "appears"),
    Mutant("count_action_beat", "fire_i || stalled_o", "(fire_i && !valid_q) || stalled_o", "conserves"),
    Mutant("count_action_beat", "= valid_q && !ready_i", "= valid_q", "stalls"),
    Mutant("count_action_beat", "data_q <= '0", "data_q <= '1", "empties"),
    Mutant("count_action_beat", "data_q <= data_i", "data_q <= {data_i[Width-2:0], 1'b0}", "data"),
    Mutant("count_action_beat", "if (fire_i) data_q", "if (fire_i || ready_i) data_q", "keeps"),
    Mutant("count_action_beat", "fired_q ? offered_q", "fired_q && ready_i ? offered_q", "data", 0),
    Mutant("count_action_beat", "data_q  <= data_o", "data_q  <= offered_q", "keeps", 0),
    Mutant("count_action_beat", "fired_q <= 1'b0", "fired_q <= 1'b1", "empties", 0),
    Mutant("count_action_sum", "if (rst_i || clear_i) sum_q", "if (rst_i) sum_q", "adds", 0),
    Mutant("count_action_extreme", "key > best_key)", "key >= best_key)", "chooses", 0),
    Mutant("count_action_extreme", "key < best_key", "key > best_key", "keeps", 1),
    Mutant("count_action_extreme", "index = counted;", "index = counted + 1'b1;", "numbers", 0),
    Mutant("count_action_extreme", "if (rst_i || clear_i)", "if (rst_i)", "keeps", 0),
    Mutant("count_action_extreme", "{{(Width - 1) {1'b0}}, 1'b1} <<", "{Width{1'b0}} <<", "chooses", 2),
    Mutant("count_action_sum", "SampleSigned &&", "!SampleSigned &&", "terms", 1),
    Mutant("count_action_sum", "fill  = Signed &&", "fill  = !Signed &&", "sums", 0),
    Mutant("count_action_ones", "n % 2 == 1", "n == 1", "counts"),
    Mutant("count_action_ones", "(sums[2*n][i-1] | sums", "(sums[2*n][i-1] & sums", "counts", 0),
    Mutant(
        "count_action_flag", "(set_i || flag_q) && !clear_i", "set_i || (flag_q && !clear_i)", "clears", 0
    ),
    Mutant("count_action_flag", "set_i || (flag_q && !clear_i)", "(set_i || flag_q) && !clear_i", "sets"),
    Mutant("count_action_flag", "set_i || (flag_q && !clear_i)", "set_i || flag_q", "clears"),
    Mutant("count_action_flag", "set_i || (flag_q && !clear_i)", "set_i", "holds"),
    Mutant("count_action_flag", "flag_q <= 1'b0", "flag_q <= 1'b1", "resets"),
    Mutant("count_action_advance", "number_q == Last ?", "number_q > Last ?", "wraps"),
    Mutant("count_action_advance", "number_q == Last ?", "number_q == '1 ?", "stays_below"),
    Mutant("count_action_advance", "number_q + {{", "number_q - {{", "advances"),
    Mutant("count_action_advance", "else if (advance_i)", "else", "holds"),
    Mutant("count_action_advance", "number_q <= '0;", "number_q <= '1;", "resets"),
    Mutant("adder_tree", "{Stages{samples_i[i*Width+Width-1]}}", "{Stages{1'b0}}", "sums"),
    Mutant("signed_products", "signs_i[i] ?", "!signs_i[i] ?", "passes"),
    Mutant("signed_products", "-magnitude", "~magnitude", "negates"),
    Mutant("signed_products", "keep_i[i] ?", "1'b1 ?", "drops"),
    Mutant("pairwise_means", "(first ^ second) >> 1", "first ^ second", "means"),
    Mutant("preamble_match", ">= means_i[k*Width+:Width]", "> means_i[k*Width+:Width]", "places", 0),
    Mutant("preamble_match", ">= means_i[Width-1:0]", "> means_i[Width-1:0]", "places", 1),
    Mutant("highest_bit", "word_i[i] ? i", "!word_i[i] ? i", "highest"),
    Mutant("normalised_activation", "result_i[Width-1] ? 8'd0 :", "1'b0 ? 8'd0 :", "rectifies"),
    Mutant("normalised_activation", "raised >> highest_i", "raised >> highest_i[2:0]", "shifts"),
    Mutant("running_maximum", "$signed(sample_i) > $signed", "$signed(sample_i) >= $signed", "keeps"),
    Mutant("running_maximum", "$signed(sample_i) > $signed(largest_q)", "sample_i > largest_q", "rises"),
    Mutant("ones_complement_sum", "+ {{(Width - 1) {1'b0}}, folded[Width]}", "", "sums", 0),
    Mutant("ones_complement_sum", "{1'b0, sum_q[Width-1:0]} + ", "", "sums"),
    Mutant("ones_complement_sum", "words[2*Width+:Width]", "words[Width+:Width]", "nonzero"),
    Mutant("frame_extent", "rest > i[LengthWidth-1:0]", "rest >= i[LengthWidth-1:0]", "needs"),
    Mutant("frame_extent", "more && rest != Bytes[LengthWidth-1:0]", "1'b0", "cuts"),
    Mutant("frame_extent", "last_i && (|", "(|", "waits"),
    Mutant("frame_extent", "|(keep_i >> LastBytes)", "|keep_i", "limits"),
    Mutant("frame_extent", "beat_o == '1 ? beat_o : ", "", "follows"),
    Mutant("frame_extent", "first_i ? length_i : rest_q", "length_i", "needs"),
    Mutant("packet_class", "to == mac_i", "to == '1", "packets"),
    Mutant("packet_class", "header_i[349:336] == '0", "header_i[348:336] == '0", "wholes"),
    Mutant("packet_class", "!from_group &&", "", "senders"),
    Mutant("packet_class", "&& header_i[207-:32] == address_i", "", "arps"),
    Mutant("packet_class", "== 8'd17 &&", "== 8'd17 || ping_o &&", "one"),
    Mutant("packet_verdict", "if (bad_i) outcome[1] = 1'b1;\n    else if", "if", "unknown"),
    Mutant("packet_verdict", "|outcome[6:5] || |outcome[3:2]", "|outcome[6:1]", "replies"),
    Mutant("packet_verdict", "(outcome[4] && marked_i)", "outcome[4]", "malforms"),
    Mutant("packet_verdict", "else if (!suits_i) outcome[6] = 1'b1;\n    ", "", "asks"),
    Mutant("packet_verdict", "else if (arp_i)", "if (arp_i)", "at_most"),
    Mutant("packet_verdict", "(request_q && !ready_i)", "1'b0", "stays"),
    Mutant("packet_verdict", "valid_i ? outcome : '0", "outcome", "silent"),
    Mutant("answer_turns", "&& !(reply_valid_i && answer_q)", "", "turns"),
    Mutant("answer_turns", "idle_q && (answer_valid_i || reply_valid_i)", "idle_q", "chooses"),
    Mutant("answer_turns", "sending_q && ready_i && last_i;", "sending_q && last_i;", "tells"),
    Mutant("answer_turns", "(sending_q && !done)", "sending_q", "offers"),
    Mutant("answer_turns", "(first_q && !ready_i)", "first_q", "firsts"),
    Mutant("float_product", "valid_q[Latency-2:0], valid_i", "valid_q[Latency-2:0], 1'b1", "flows", 0),
    Mutant("float_product", "zero_6_q || !valid_q[Latency-2]", "zero_6_q", "rests", 0),
    Mutant("float_product", "rst_i || zero_6_q ||", "rst_i ||", "zero", 0),
    Mutant(
        "float_product", "whole_i[Whole-1] ^ scale_i[Mantissa+Exponent-1]", "whole_i[Whole-1]", "signs", 0
    ),
    Mutant("float_product", "? -whole_i : whole_i", "? ~whole_i : whole_i", "grows", 0),
    Mutant("float_product", " + Exponent'(wide_5_q[Wide-1])", "", "nearest", 0),
    Mutant("float_product", "half && (rest || normal[Whole])", "half && rest", "even", 0),
    Mutant("float_product", "half && (rest || normal[Whole])", "|normal[Whole-1:0]", "below", 0),
    Mutant("float_steps", "valid_q[Latency-2:0], valid_i", "valid_q[Latency-2:0], 1'b1", "flows"),
    Mutant("float_steps", "zero_3_q || !valid_q[Latency-2]", "zero_3_q", "rests"),
    Mutant("float_steps", "negative || real_i", "real_i", "zero"),
    Mutant("float_steps", "distance_2_q <= Mantissa'(reach_2_q)", "distance_2_q == '0", "rounds"),
    Mutant("float_steps", "tie_3_q ? halves_3_q[1] : halves_3_q[0]", "halves_3_q[0]", "rounds"),
    Mutant("float_steps", "full_3_q || rounded[Bits]", "full_3_q", "clips"),
    Mutant("burst_reader", "6'd32 - {1'b0, next_q[4:0]}", "6'd32", "bounds"),
    Mutant("burst_reader", "&& (!arvalid_q || m_axi_arready_i) && !flush_i", "&& !flush_i", "keeps"),
    Mutant("burst_reader", "if (rst_i) arvalid_q", "if (rst_i || flush_i) arvalid_q", "keeps"),
    Mutant("burst_reader", "Depth[PlaceWidth:0] - 33", "Depth[PlaceWidth:0] - 32", "room"),
    Mutant("burst_reader", "else if (arrived && !send)", "else if (arrived)", "counts"),
    Mutant("burst_reader", "!flush_i && !flushing_q;\n  assign pop", "!flush_i;\n  assign pop", "forgets"),
    Mutant("burst_reader", "if (rst_i || flush_i) left_q", "if (rst_i) left_q", "forgets"),
    Mutant("burst_reader", "valid_q   <= read != write_q", "valid_q   <= 1'b1", "full"),
    Mutant("burst_reader", "else if (bursts_q == '0) flushing_q", "else flushing_q", "fits"),
    Mutant("burst_reader", "else if (flush_i) flushing_q", "else if (1'b0) flushing_q", "flushes"),
    Mutant("burst_reader", "if (rst_i) flushing_q <= 1'b0;\n    else if", "if", "resets"),
    Mutant("burst_reader", "m_axi_rready_o  = 1'b1", "m_axi_rready_o  = !flush_i", "takes_beats"),
    Mutant("frame_queue", "full      = after == read_q", "full      = 1'b0", "overruns"),
    Mutant("frame_queue", "dropping_q <= !store && !last_i", "dropping_q <= !store", "overruns"),
    Mutant("frame_queue", "write_q <= end_q;", "write_q <= write_q;", "orders"),
    Mutant("frame_queue", "last_i && (dropping_q || full)", "last_i && full", "overruns"),
    Mutant("frame_queue", "if (last_i) end_q <= after", "end_q <= after", "wholes"),
    Mutant("frame_queue", "next != end_q", "next != write_q", "wholes"),
    Mutant("frame_queue", "next != end_q", "read_q != end_q", "prompt"),
    Mutant("frame_queue", ".word_i(beat_i)", ".word_i(~beat_i)", "stores"),
    Mutant("frame_queue", ".read_address_i(next)", ".read_address_i(read_q)", "shows"),
    Mutant("packet_request", "{4'd0, take && first_q}", "{4'd0, take}", "owes"),
    Mutant("packet_request", ".valid_i(ended_line_q[3])", ".valid_i(new_q)", "quiet"),
    Mutant("packet_request", "image_ready_i && !claimed_q", "image_ready_i", "alone"),
    Mutant("packet_request", "take && first_q && plain_q", "take && first_q", "claims"),
    Mutant("packet_answer", "    .answer_valid_i,\n", "    .answer_valid_i(1'b1),\n", "chooses"),
    Mutant("packet_answer", "next && ping_q", "sends && ping_q", "echoes"),
    Mutant("packet_answer", "reply_i[1:0] == 2'd2", "reply_i[1]", "owns"),
    Mutant("packet_answer", "answering && answer_code_i == '0", "answering", "owns"),
    Mutant("packet_answer", "? answer_arrival_us_i :", "? answer_class_i :", "times"),
    Mutant("packet_answer", "word_q + 5'd1", "word_q + 5'd2", "asks"),
    Mutant("packet_answer", "choose ? '0 : score_word_o", "choose ? 5'd1 : score_word_o", "follows"),
    Mutant("packet_answer", "total < 11'd46", "total < 11'd45", "sizes"),
    Mutant("packet_answer", "if (begins) rest_q", "if (choose) rest_q", "sizes"),
    Mutant("packet_answer", "rest_q <= 11'd64", "rest_q < 11'd64", "lasts"),
    Mutant("packet_answer", "rest_q > i[10:0]", "rest_q >= i[10:0]", "keeps"),
    Mutant("packet_answer", "? sample : 8'd0", "? sample : sample", "pads"),
    Mutant(
        "packet_answer", "ping_q ? echo_i[8*i+:8] : carry_q", "arp_q ? echo_i[8*i+:8] : carry_q", "goes_on"
    ),
    Mutant("packet_answer", "first ? opening_rest :", "last ? opening_rest :", "carries"),
    Mutant("packet_answer", "score_data_i[8*(i-26)+:8]", "score_data_i[8*(i-25)+:8]", "scores"),
    Mutant("packet_answer", "64'h0001_0800_0604_0002", "64'h0001_0800_0604_0001", "arps"),
    Mutant("packet_answer", "client[95:48], mac_i, 16'h0800", "mac_i, client[95:48], 16'h0800", "addresses"),
    Mutant("packet_answer", "heading[159:80], heading_check", "heading[159:80], message_check", "sums"),
    Mutant("packet_answer", "ping_q ? 8'd1 : 8'd17", "arp_q ? 8'd1 : 8'd17", "heads"),
    Mutant("packet_answer", "payload + 11'd60", "payload + 11'd59", "heads"),
    Mutant("packet_answer", "{16'd0, echo_check_q}", "{echo_check_q, 16'd0}", "pings"),
    Mutant("packet_answer", "17'h00800", "17'h00008", "rises"),
    Mutant(
        "packet_answer",
        ": ping_q ? echo_i[8*i+:8] : opening[719-8*i-:8];",
        ": opening[719-8*i-:8];",
        "copies",
    ),
    Mutant("packet_answer", "16'd0, 16'd1, {5'd0, payload}", "16'd0, 16'd0, {5'd0, payload}", "includes"),
    Mutant("packet_answer", '"LBIP", content', '"LBIQ", content', "messages"),
    Mutant("packet_answer", "scores_q ? answer_sum_i : 16'd0", "answer_sum_i", "includes"),
    Mutant("packet_answer", ".words_i({32'd0, heading})", ".words_i({16'd1, 16'd0, heading})", "covers"),
    Mutant("packet_answer", ".data_i({last, keep, beat})", ".data_i({1'b0, keep, beat})", "passes"),
    Mutant(
        "packet_answer", "{tx_last_o, tx_keep_o, tx_data_o}", "{tx_last_o, tx_data_o, tx_keep_o}", "passes"
    ),
    Mutant("packet_answer", "    .answer_ready_o,\n", "    .answer_ready_o(reply_ready_o),\n", "answers"),
    Mutant("packet_answer", "    .reply_ready_o,\n", "    .reply_ready_o(answer_ready_o),\n", "replies"),
    Mutant("packet_answer", "    .reply_valid_i,\n", "    .reply_valid_i(1'b0),\n", "serves"),
    Mutant("packet_answer", "answer_q <= answering;", "answer_q <= !answering;", "owns"),
    Mutant("packet_answer", "message_sum == '1 ? 16'hFFFF : ~message_sum", "~message_sum", "checks"),
    Mutant("packet_answer", ".valid_i(sends)", ".valid_i(sends || tx_last_o)", "leaves"),
)


def sources(mutants: Sequence[Mutant] = MUTANTS) -> dict[str, str]:
    """Return mutants with their checks in one top: mutant `i` is `b<i>`."""
    blocks = [mutant.proven for mutant in mutants]
    names = {place: f"{mutant.block}_mutant_{place}" for place, mutant in enumerate(mutants)}
    texts = {f"{names[place]}.sv": mutant.text(names[place]) for place, mutant in enumerate(mutants)}
    parts = read_instantiated_sources(each.block for each in blocks)
    checks = read_checks_sources(each.block for each in blocks)
    return {**parts, **texts, **checks, "proof.sv": write_proof(blocks, names)}


@dataclass(frozen=True)
class WiringMutant:
    """A piece of a generated top replaced by another; module and property that have to fail."""

    old: str
    new: str
    module: str
    property: str


WIRED = """
module gate {
  inputs:  { stream x of 4 bits signed; flag on; flag restart }
  counts:  { n: sum x.valid over cycles while on; again: sum restart }
  targets: { n: 3; one: 1 }
  actions: {
    on n: emit sum x.data width 6 as total;
    on n: stream x.data as last;
    on n: advance place modulo 3;
    on again: clear n
  }
  always { place < 3 }
}
module after {
  counts:  { got: sum gate.total.valid over cycles }
  targets: { got: 2 }
  actions: { pulse done }
}
"""

WIRING_MUTANTS = (
    WiringMutant(".enable_i(on_i)", ".enable_i(1'b1)", "gate", "fires"),
    WiringMutant(
        ".clear_i(gate_again_fire),\n    .clear_status_i",
        ".clear_i(1'b0),\n    .clear_status_i",
        "gate",
        "clear",
    ),
    WiringMutant("assign x_ready_o = !gate_stall;", "assign x_ready_o = 1'b1;", "gate", "beats"),
    WiringMutant(".commit_i,", ".commit_i(commit_i && !gate_stall),", "gate", "commit"),
    WiringMutant(".data_i(x_data_i)", ".data_i(~x_data_i)", "gate", "data"),
    WiringMutant(".set_i(after_got_fire)", ".set_i(gate_n_fire)", "after", "flags"),
    WiringMutant(
        ".fire_i(gate_n_fire),\n    .data_i(gate_total_sum)",
        ".fire_i(gate_n_fire && on_i && !x_data_i[0]),\n    .data_i(gate_total_sum)",
        "gate",
        "beats",
    ),
)

CHOSEN = """
module merger {
  inputs:  { stream a of 4 bits with last; stream b of 4 bits with last buffered }
  counts:  { one: sum a.valid + b.valid by turns until last }
  targets: { 1 }
  actions: { merge with last as y }
}
"""

CHOICE_MUTANTS = (
    WiringMutant("= {b_valid_held, a_valid_i} &", "= {a_valid_i, b_valid_held} &", "merger", "fires"),
    WiringMutant("= {b_valid_held, a_valid_i} &", "= {b_valid_held, a_valid_i} |", "merger", "beats"),
    WiringMutant(".ready_i(b_ready_held)", ".ready_i(1'b1)", "merger", "beats"),
    WiringMutant("assign count_o = 16'd0;", "assign count_o = 16'd1;", "merger", "counts"),
    WiringMutant(".data_i({b_last_i, b_data_i})", ".data_i({b_last_i, ~b_data_i})", "merger", "beats"),
)
"""Faults in a choice, in the status of its level count, and in a buffer."""

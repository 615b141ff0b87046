// Every frame is one answer's or one reply's: it has the addresses, lengths and fields of its source, and checksums of them.
//
// A source keeps its fields from the choice to the end of its frame; if it does not, lengths and fields are not claimed.
module packet_answer_checks (
  input logic         clk_i,
  input logic         rst_i,
  input logic [47:0]  mac_i,
  input logic [31:0]  address_i,
  input logic [15:0]  port_i,
  input logic [31:0]  now_us_i,
  input logic         reply_valid_i,
  input logic         reply_ready_o,
  input logic [233:0] reply_i,
  input logic [511:0] echo_i,
  input logic         echo_next_o,
  input logic         answer_valid_i,
  input logic         answer_ready_o,
  input logic [7:0]   answer_code_i,
  input logic [95:0]  answer_client_i,
  input logic [31:0]  answer_model_i,
  input logic [63:0]  answer_number_i,
  input logic [31:0]  answer_arrival_us_i,
  input logic [31:0]  answer_class_i,
  input logic [63:0]  answer_cycles_i,
  input logic [8:0]   answer_scores_i,
  input logic [15:0]  answer_sum_i,
  input logic [4:0]   score_word_o,
  input logic [511:0] score_data_i,
  input logic         tx_valid_o,
  input logic         tx_ready_i,
  input logic [511:0] tx_data_o,
  input logic [63:0]  tx_keep_o,
  input logic         tx_last_o,
  input logic         choose_i,
  input logic         answering_i,
  input logic         idle_i,
  input logic         begins_i,
  input logic [2:0]   prepare_i,
  input logic         sends_i,
  input logic         ready_i,
  input logic         full_i,
  input logic [576:0] enters_i,
  input logic [576:0] leaves_i,
  input logic         first_i,
  input logic         last_i,
  input logic         answer_i,
  input logic         arp_i,
  input logic         ping_i,
  input logic         scores_i,
  input logic [31:0]  time_i,
  input logic [10:0]  rest_i,
  input logic [4:0]   word_i,
  input logic [63:0]  keep_i,
  input logic [511:0] beat_i,
  input logic [191:0] heading_words_i,
  input logic [15:0]  heading_sum_i,
  input logic [575:0] message_words_i,
  input logic [15:0]  message_sum_i,
  input logic [15:0]  echo_check_i
);

  // ---- The frame that is open, from the choice of its source to its last beat, and that source as it was then
  logic         known_q = 1'b0;
  logic         reset_q, open_q, owner_q, taken_q, steady_q, sized_q, carried_q;
  logic [2:0]   prepare_q;
  logic [1:0]   inside_q;
  logic [4:0]   beats_q;
  logic [10:0]  left_q;
  logic [31:0]  spent_q;
  logic [207:0] carry_q;
  logic [7:0]   code_q;
  logic [95:0]  client_q;
  logic [31:0]  model_q, class_q;
  logic [63:0]  number_q, cycles_q;
  logic [8:0]   count_q;
  logic [15:0]  sum_q, port_q;
  logic [1:0]   kind_q;
  logic [511:0] echo_q;
  logic [47:0]  mac_q;
  logic [31:0]  address_q;
  logic         next, ends, steady;

  assign next   = sends_i && ready_i;
  assign ends   = next && last_i;
  assign steady = steady_q && mac_i == mac_q && address_i == address_q && port_i == port_q && (owner_q
    ? {answer_code_i, answer_client_i, answer_model_i, answer_number_i, answer_class_i, answer_cycles_i}
        == {code_q, client_q, model_q, number_q, class_q, cycles_q}
      && answer_scores_i == count_q && answer_sum_i == sum_q
    : reply_i[201:0] == {number_q, model_q, client_q, code_q, kind_q} && (taken_q || echo_i == echo_q));

  // ---- What this source asks for
  logic        is_arp, is_ping, has_scores, fits;
  logic [10:0] payload, total, bytes;

  assign is_arp     = !owner_q && kind_q == 2'd1;
  assign is_ping    = !owner_q && kind_q == 2'd2;
  assign has_scores = owner_q && code_q == 8'd0;
  assign payload    = has_scores ? {count_q, 2'd0} + 11'd16 : 11'd0;
  // packet_request drops longer pings, and a model has at most 356 scores.
  assign fits       = is_ping ? total <= 11'd1500 : !has_scores || count_q <= 9'd356;
  // Of IPv4: headers of 20, 8 and 32 bytes; the answer to a ping is as long as the ping.
  assign total      = is_ping ? {echo_q[130:128], echo_q[143:136]} : payload + 11'd60;
  assign bytes      = is_arp || total < 11'd46 ? 11'd60 : total + 11'd14;

  // ---- Its headers in the order of the wire, with sums of 0
  logic [159:0] heading;
  logic [319:0] message;
  logic [127:0] numbers;
  logic [335:0] arp;
  logic [16:0]  echo_sum;

  assign heading = {
    8'h45, 8'd0, {5'd0, total}, 16'd0, 16'h4000, 8'd64, is_ping ? 8'd1 : 8'd17, 16'd0, address_q, client_q[47:16]
  };
  assign message = {
    port_q, client_q[15:0], {5'd0, total} - 16'd20, 16'd0,
    "LBIP", 8'd1, has_scores ? 8'd2 : 8'd3, has_scores ? 8'd2 : 8'd1, code_q, model_q, spent_q, number_q,
    16'd0, 16'd1, {5'd0, payload}, 16'd0
  };
  assign numbers = has_scores ? {class_q, 23'd0, count_q, cycles_q} : '0;
  assign arp     = {
    client_q[95:48], mac_q, 16'h0806, 16'h0001, 16'h0800, 8'd6, 8'd4, 16'd2, mac_q, address_q, client_q[95:16]
  };
  // RFC 1624: the type of a ping falls from 8 to 0 in the high byte of a word, so that its checksum rises by 0x0800.
  assign echo_sum = {1'b0, echo_q[295:288], echo_q[303:296]} + 17'h00800;

  // ---- The beat that is offered, the first byte in the highest bits
  logic [511:0] wire_beat, wire_echo, wire_data, kept;
  logic [63:0]  mask;

  for (genvar i = 0; i < 64; i++) begin : gen_bytes
    assign wire_beat[511-8*i-:8] = beat_i[8*i+:8];
    assign wire_echo[511-8*i-:8] = echo_i[8*i+:8];
    assign kept[511-8*i-:8]      = {8{keep_i[i]}};
    assign mask[i]               = left_q > i[10:0];
    assign wire_data[511-8*i-:8] = score_data_i[8*i+:8];
  end

  always_ff @(posedge clk_i) begin
    known_q   <= 1'b1;
    reset_q   <= rst_i;
    open_q    <= !rst_i && (choose_i || (open_q && !ends));
    taken_q   <= !rst_i && !ends && (next || taken_q);
    prepare_q <= rst_i ? '0 : {prepare_q[1:0], choose_i};
    if (rst_i) inside_q <= '0;
    else inside_q <= inside_q + {1'b0, next} - {1'b0, tx_valid_o && tx_ready_i};
    if (choose_i) begin
      owner_q  <= answering_i;
      kind_q   <= reply_i[1:0];
      code_q   <= answering_i ? answer_code_i : reply_i[9:2];
      client_q <= answering_i ? answer_client_i : reply_i[105:10];
      model_q  <= answering_i ? answer_model_i : reply_i[137:106];
      number_q <= answering_i ? answer_number_i : reply_i[201:138];
      spent_q  <= now_us_i - (answering_i ? answer_arrival_us_i : reply_i[233:202]);
      class_q  <= answer_class_i;
      cycles_q <= answer_cycles_i;
      count_q  <= answer_scores_i;
      sum_q    <= answer_sum_i;
      echo_q   <= echo_i;
      {mac_q, address_q, port_q} <= {mac_i, address_i, port_i};
    end
    steady_q <= choose_i || steady;
    if (begins_i) sized_q <= steady;
    if (begins_i) left_q <= bytes;
    else if (next) left_q <= left_q - 11'd64;
    if (choose_i) beats_q <= '0;
    else if (next) beats_q <= beats_q + 5'd1;
    if (next) carry_q <= taken_q ? wire_data[207:0] : {message[79:0], numbers};
    if (next) carried_q <= taken_q || (steady && sized_q);
  end

  always_comb begin
    if (known_q) begin
      if (reset_q) resets: assert (!open_q && !sends_i && prepare_i == '0 && !tx_valid_o);
      // Nothing leaves but beats of a frame that was opened for a source that waited, and one frame for each.
      if (choose_i) chooses: assert (!open_q && (answering_i ? answer_valid_i : reply_valid_i));
      if (sends_i || begins_i) opens: assert (open_q);
      if (!open_q && (answer_valid_i || reply_valid_i)) serves: assert (choose_i);
      prepares: assert (prepare_i == prepare_q && (prepare_i & (prepare_i - 1'b1)) == '0);
      idles: assert (idle_i == !open_q && begins_i == prepare_i[2]);
      states: assert (open_q == (sends_i || prepare_i != '0) && !(sends_i && prepare_i != '0));
      if (sends_i) starts: assert (first_i == !taken_q);
      if (!sends_i) untaken: assert (!taken_q);
      leaves: assert (inside_q == {1'b0, tx_valid_o} + {1'b0, full_i} && ready_i == !full_i && (tx_valid_o || !full_i));
      // Beats pass the buffer, of which count_action_buffer_checks speaks, as they are.
      passes: assert (enters_i == {last_i, keep_i, beat_i} && {tx_last_o, tx_keep_o, tx_data_o} == leaves_i);
      answers: assert (answer_ready_o == (ends && owner_q));
      replies: assert (reply_ready_o == (ends && !owner_q));
      echoes: assert (echo_next_o == (next && ping_i));
      if (open_q) turns: assert (answering_i == owner_q);
      if (open_q) owns: assert (answer_i == owner_q && arp_i == is_arp && ping_i == is_ping && scores_i == has_scores);
      if (open_q) times: assert (time_i == spent_q);
      if (open_q) follows: assert (taken_q ? word_i == beats_q - 5'd1 : word_i == '0 && beats_q == '0);
      asks: assert (score_word_o == word_i + {4'd0, next && taken_q});
      // Lengths: the beats are full but the last, which ends where the frame ends; there is nothing behind it.
      if (sends_i && sized_q) begin
        sizes: assert (rest_i == left_q);
        lasts: assert (last_i == (left_q <= 11'd64));
        keeps: assert (keep_i == mask);
      end
      pads: assert ((wire_beat & ~kept) == '0);
      if (sends_i && taken_q) begin
        if (ping_i) goes_on: assert (wire_beat == (wire_echo & kept));
        else begin
          if (carried_q) carries: assert (wire_beat[511:304] == (carry_q & kept[511:304]));
          scores: assert (wire_beat[303:0] == (wire_data[511:208] & kept[303:0]));
        end
      end
      // The words of which the sums are made: all of the header, all of the message with its pseudo-header. They stand
      // for the three cycles before the first beat, and by ones_complement_sum_checks a sum is of the words of three
      // cycles ago: so the first beat has the sums of these words.
      if (open_q && steady && !is_arp && !taken_q) begin
        covers: assert (heading_words_i == {32'd0, heading});
        if (!is_ping) includes: assert (message_words_i == {
          16'd17, {5'd0, total} - 16'd20, address_q, client_q[47:16], message, numbers, 16'd0, has_scores ? sum_q : 16'd0
        });
      end
      // Fields, and where the sums stand.
      if (sends_i && first_i && steady && sized_q && fits) begin
        // No fact about the block, but what the next ones need.
        begins: assert (left_q == bytes);
        if (is_arp) arps: assert (wire_beat == {arp, 176'd0});
        else begin
          addresses: assert (wire_beat[511:400] == {client_q[95:48], mac_q, 16'h0800});
          heads: assert ({wire_beat[399:320], 16'd0, wire_beat[303:240]} == heading);
          sums: assert (wire_beat[319:304] == ~heading_sum_i);
          if (is_ping) begin
            pings: assert (wire_beat[239:208] == {16'd0, echo_check_i});
            rises: assert (echo_check_i == echo_sum[15:0] + {15'd0, echo_sum[16]});
            copies: assert (wire_beat[207:0] == (wire_echo[207:0] & kept[207:0]));
          end else begin
            messages: assert ({wire_beat[239:192], 16'd0, wire_beat[175:0]} == message[319:80]);
            // A sum of 0 is sent as all ones: 0 would mean that there is none (RFC 768).
            checks: assert (wire_beat[191:176] == (message_sum_i == '1 ? '1 : ~message_sum_i));
          end
        end
      end
    end
  end

endmodule

// From answers and replies to frames: ARP and ping replies, refusals and answers of up to 356 scores, with checksums.
//
// The first beat leaves five cycles after the answer is valid, and a beat a cycle follows. Answers and replies take turns.
// reply_i and echo_i are those of packet_request. Frames have at least 60 bytes; what is behind their packet is 0.
module packet_answer (
  input  logic         clk_i,
  input  logic         rst_i,
  input  logic [47:0]  mac_i,
  input  logic [31:0]  address_i,
  input  logic [15:0]  port_i,
  input  logic [31:0]  now_us_i,
  input  logic         reply_valid_i,
  output logic         reply_ready_o,
  input  logic [233:0] reply_i,
  input  logic [511:0] echo_i,
  output logic         echo_next_o,
  input  logic         answer_valid_i,
  output logic         answer_ready_o,
  input  logic [7:0]   answer_code_i,
  input  logic [95:0]  answer_client_i,
  input  logic [31:0]  answer_model_i,
  input  logic [63:0]  answer_number_i,
  input  logic [31:0]  answer_arrival_us_i,
  input  logic [31:0]  answer_class_i,
  input  logic [63:0]  answer_cycles_i,
  input  logic [8:0]   answer_scores_i,
  input  logic [15:0]  answer_sum_i,
  output logic [4:0]   score_word_o,
  input  logic [511:0] score_data_i,
  output logic         tx_valid_o,
  input  logic         tx_ready_i,
  output logic [511:0] tx_data_o,
  output logic [63:0]  tx_keep_o,
  output logic         tx_last_o
);

  // ---- Whose turn it is, and what it sends: the source is stable until the frame is sent
  logic        choose, answering, begins, sends, first, ready, last, next;
  logic        answer_q, arp_q, ping_q, scores_q;
  logic [31:0] time_q;

  answer_turns #(
    .Prepare(3)
  ) u_turns (
    .clk_i,
    .rst_i,
    .answer_valid_i,
    .answer_ready_o,
    .reply_valid_i,
    .reply_ready_o,
    .choose_o(choose),
    .answer_o(answering),
    .begin_o(begins),
    .valid_o(sends),
    .first_o(first),
    .ready_i(ready),
    .last_i(last)
  );

  assign next        = sends && ready;
  assign echo_next_o = next && ping_q;

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      {answer_q, arp_q, ping_q, scores_q} <= '0;
      time_q <= '0;
    end else if (choose) begin
      answer_q <= answering;
      arp_q    <= !answering && reply_i[1:0] == 2'd1;
      ping_q   <= !answering && reply_i[1:0] == 2'd2;
      scores_q <= answering && answer_code_i == '0;
      time_q   <= now_us_i - (answering ? answer_arrival_us_i : reply_i[233:202]);
    end
  end

  logic [7:0]  code;
  logic [95:0] client;
  logic [31:0] model;
  logic [63:0] number;

  assign code   = answer_q ? answer_code_i : reply_i[9:2];
  assign client = answer_q ? answer_client_i : reply_i[105:10];
  assign model  = answer_q ? answer_model_i : reply_i[137:106];
  assign number = answer_q ? answer_number_i : reply_i[201:138];

  // ---- Lengths: of the payload of the inference packet, of the IPv4 packet, and of the frame
  logic [10:0] payload, total, bytes;

  assign payload = scores_q ? {answer_scores_i, 2'd0} + 11'd16 : 11'd0;
  assign total   = ping_q ? {echo_i[130:128], echo_i[143:136]} : payload + 11'd60;
  assign bytes   = arp_q || total < 11'd46 ? 11'd60 : total + 11'd14;

  // ---- The headers, the first byte in the highest bits, before their checksums are known
  logic [223:0] content;
  logic [127:0] numbers;
  logic [319:0] message;
  logic [159:0] heading;
  logic [15:0]  heading_sum, message_sum, heading_check, message_check;

  assign content = {
    8'd1, scores_q ? 8'd2 : 8'd3, scores_q ? 8'd2 : 8'd1, code, model, time_q, number,
    16'd0, 16'd1, {5'd0, payload}, 16'd0
  };
  assign numbers = scores_q ? {answer_class_i, 23'd0, answer_scores_i, answer_cycles_i} : '0;
  assign message = {port_i, client[15:0], {5'd0, total} - 16'd20, 16'd0, "LBIP", content};
  // Version 4, no options, may not be fragmented, lifetime 64.
  assign heading = {
    16'h4500, {5'd0, total}, 16'd0, 16'h4000, 8'd64, ping_q ? 8'd1 : 8'd17, 16'd0, address_i, client[47:16]
  };

  // The sum of a datagram has addresses, protocol and length once more.
  ones_complement_sum #(
    .Words(36)
  ) u_message (
    .clk_i,
    .rst_i,
    .words_i({
      16'd17, {5'd0, total} - 16'd20, address_i, client[47:16], message, numbers, 16'd0, scores_q ? answer_sum_i : 16'd0
    }),
    .sum_o(message_sum)
  );

  ones_complement_sum #(
    .Words(12)
  ) u_heading (
    .clk_i,
    .rst_i,
    .words_i({32'd0, heading}),
    .sum_o(heading_sum)
  );

  // In UDP a checksum of 0 would mean that there is none.
  assign heading_check = ~heading_sum;
  assign message_check = message_sum == '1 ? 16'hFFFF : ~message_sum;

  // A ping becomes its reply by a type that is less by 8: its checksum is more by as much.
  logic [16:0] echo_check;
  logic [15:0] echo_check_q;

  assign echo_check = {1'b0, echo_i[295:288], echo_i[303:296]} + 17'h00800;

  always_ff @(posedge clk_i) begin
    if (rst_i) echo_check_q <= '0;
    else echo_check_q <= echo_check[15:0] + {15'd0, echo_check[16]};
  end

  // ---- What goes out before scores or the rest of a ping, in the order of the wire
  logic [719:0] opening;
  logic [31:0]  ports;
  logic [511:0] opening_wire, arp, beat;
  logic [207:0] opening_rest, carry_q;

  // Where datagrams have ports, pings have type, code and checksum.
  assign ports   = ping_q ? {16'd0, echo_check_q} : message[319:288];
  assign opening = {
    client[95:48], mac_i, 16'h0800, heading[159:80], heading_check, heading[63:0],
    ports, message[287:272], message_check, message[255:0], numbers
  };

  assign arp = {
    client[95:48], mac_i, 16'h0806, 64'h0001_0800_0604_0002, mac_i, address_i, client[95:16], 176'd0
  };

  for (genvar i = 0; i < 64; i++) begin : gen_opening
    if (i < 38) begin : gen_written
      assign opening_wire[8*i+:8] = arp_q ? arp[511-8*i-:8] : opening[719-8*i-:8];
    end else begin : gen_copied
      assign opening_wire[8*i+:8] = arp_q ? arp[511-8*i-:8] : ping_q ? echo_i[8*i+:8] : opening[719-8*i-:8];
    end
  end

  for (genvar i = 0; i < 26; i++) begin : gen_opening_rest
    assign opening_rest[8*i+:8] = opening[207-8*i-:8];
  end

  // ---- Beats: 26 bytes of the word before, 38 of the next
  logic [10:0] rest_q;
  logic [4:0]  word_q;
  logic [63:0] keep;

  assign last         = rest_q <= 11'd64;
  assign score_word_o = next && !first ? word_q + 5'd1 : word_q;

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      rest_q  <= '0;
      word_q  <= '0;
      carry_q <= '0;
    end else begin
      if (begins) rest_q <= bytes;
      else if (next) rest_q <= rest_q - 11'd64;
      word_q <= choose ? '0 : score_word_o;
      if (next) carry_q <= first ? opening_rest : score_data_i[511:304];
    end
  end

  for (genvar i = 0; i < 64; i++) begin : gen_beat
    logic [7:0] sample;

    if (i < 26) begin : gen_carried
      assign sample = first ? opening_wire[8*i+:8] : ping_q ? echo_i[8*i+:8] : carry_q[8*i+:8];
    end else begin : gen_scores
      assign sample = first ? opening_wire[8*i+:8] : ping_q ? echo_i[8*i+:8] : score_data_i[8*(i-26)+:8];
    end
    assign keep[i]      = rest_q > i[10:0];
    assign beat[8*i+:8] = keep[i] ? sample : 8'd0;
  end

  count_action_buffer #(
    .Width(577)
  ) u_buffer (
    .clk_i,
    .rst_i,
    .valid_i(sends),
    .data_i({last, keep, beat}),
    .ready_o(ready),
    .valid_o(tx_valid_o),
    .data_o({tx_last_o, tx_keep_o, tx_data_o}),
    .ready_i(tx_ready_i)
  );

endmodule

// From frames to requests: reads Ethernet, ARP, IPv4, ICMP, UDP and inference packets, a beat of 64 bytes a cycle.
//
// Every frame becomes a request or has one outcome (see packet_verdict), seven cycles after its last beat. The first beat
// of a frame waits here until there is room for whatever the frame may become: a place in the queue of replies, for a
// request a free image buffer, for a ping a place for its longest frame. After that no beat waits.
// reply_o is what packet_answer sends back: [1:0] 1 ARP, 2 ping, 3 refusal, [9:2] code, [105:10] client, [137:106]
// model, [201:138] number, [233:202] arrival. For a ping echo_o has its frame, a beat for each echo_next_i.
module packet_request (
  input  logic         clk_i,
  input  logic         rst_i,
  input  logic [47:0]  mac_i,
  input  logic [31:0]  address_i,
  input  logic [15:0]  port_i,
  input  logic [31:0]  now_us_i,
  input  logic         rx_valid_i,
  output logic         rx_ready_o,
  input  logic [511:0] rx_data_i,
  input  logic [63:0]  rx_keep_i,
  input  logic         rx_last_i,
  input  logic         rx_bad_i,
  output logic [31:0]  model_o,
  input  logic         known_i,
  input  logic [15:0]  inputs_i,
  input  logic         image_ready_i,
  output logic         image_write_o,
  output logic [4:0]   image_word_o,
  output logic [511:0] image_data_o,
  output logic         request_valid_o,
  input  logic         request_ready_i,
  output logic [95:0]  request_client_o,
  output logic [31:0]  request_model_o,
  output logic [15:0]  request_inputs_o,
  output logic [63:0]  request_number_o,
  output logic [31:0]  request_deadline_us_o,
  output logic [31:0]  request_arrival_us_o,
  output logic [6:0]   outcome_o,
  output logic         received_o,
  output logic         reply_valid_o,
  input  logic         reply_ready_i,
  output logic [233:0] reply_o,
  output logic [511:0] echo_o,
  input  logic         echo_next_i
);

  // Replies that may wait, and beats of pings; a frame of 1514 bytes has 24 beats, one more may be on its way.
  localparam logic [4:0] Replies = 5'd15;
  localparam int EchoBits = 6;
  localparam logic [4:0] FrameBeats = 5'd24;
  localparam logic [EchoBits-1:0] EchoLimit = 6'd38;
  localparam int FieldBits = EchoBits + 257;
  localparam logic [15:0] HeaderBytes = 16'd60;  // of IPv4, UDP and the inference packet
  localparam logic [63:0] PlainRequest = {"LBIP", 32'h01_01_01_00};

  // ---- The beat that comes in, the first byte in the highest bits; what a frame does not have is 0
  logic         begins_q;
  logic [511:0] arriving;
  logic         arp, ping, datagram;

  for (genvar i = 0; i < 64; i++) begin : gen_arriving
    assign arriving[511-8*i-:8] = rx_keep_i[i] ? rx_data_i[8*i+:8] : 8'd0;
  end

  packet_class u_class (
    .mac_i,
    .address_i,
    .port_i,
    .header_i(arriving),
    .arp_o(arp),
    .ping_o(ping),
    .datagram_o(datagram)
  );

  // ---- The beat that waits: what its frame looks like stays for all beats of the frame
  logic         waits_q, first_q, last_q, bad_q, arp_q, ping_q, datagram_q, plain_q;
  logic [511:0] beat_q;
  logic [63:0]  keep_q;
  logic [31:0]  arrival_q;
  logic         take, room, claimed_q;
  logic [4:0]   owed_q;

  assign take       = waits_q && (!first_q || room);
  assign rx_ready_o = !waits_q || take;
  assign received_o = rx_valid_i && rx_ready_o && rx_last_i;

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      begins_q <= 1'b1;
      waits_q  <= 1'b0;
    end else begin
      if (rx_ready_o) waits_q <= rx_valid_i;
      if (rx_valid_i && rx_ready_o) begins_q <= rx_last_i;
    end
  end

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      {first_q, last_q, bad_q, arp_q, ping_q, datagram_q, plain_q} <= '0;
      beat_q    <= '0;
      keep_q    <= '0;
      arrival_q <= '0;
    end else if (rx_valid_i && rx_ready_o) begin
      beat_q  <= arriving;
      keep_q  <= rx_keep_i;
      first_q <= begins_q;
      last_q  <= rx_last_i;
      bad_q   <= rx_last_i && rx_bad_i;
      if (begins_q) begin
        {arp_q, ping_q, datagram_q} <= {arp, ping, datagram};
        plain_q   <= datagram && arriving[175-:64] == PlainRequest;
        arrival_q <= now_us_i;
      end
    end
  end

  // ---- Its bytes that belong to the packet
  logic [15:0] total, total_q;
  logic [4:0]  beat;
  logic [63:0] needed;
  logic        cut, too_long;

  assign total = beat_q[383-:16];

  frame_extent u_extent (
    .clk_i,
    .rst_i,
    .take_i(take),
    .first_i(first_q),
    .last_i(last_q),
    .keep_i(keep_q),
    .length_i(arp_q ? 17'd42 : {1'b0, total} + 17'd14),
    .beat_o(beat),
    .needed_o(needed),
    .short_o(cut),
    .long_o(too_long)
  );

  // ---- The frame as far as it is read: the beat in wire order, and the fields of its headers
  logic         new_q, begun_q, ended_q, frame_arp_q, frame_ping_q, frame_datagram_q, frame_plain_q, frame_bad_q;
  logic         wrong_q, lost_q, unsummed_q, marked_q, sound_q, malformed_q, parts_q;
  logic [4:0]   place_q;
  logic [511:0] packet, packet_q;
  logic [95:0]  client_q;
  logic [31:0]  model_q, deadline_q, frame_arrival_q;
  logic [63:0]  number_q;
  logic [15:0]  length_q, fragment, fragments, length;
  logic         some_q;

  assign fragment  = beat_q[495-:16];
  assign fragments = beat_q[479-:16];
  assign length    = beat_q[463-:16];

  for (genvar i = 0; i < 64; i++) begin : gen_packet
    assign packet[8*i+:8] = needed[i] ? beat_q[511-8*i-:8] : 8'd0;
  end

  always_ff @(posedge clk_i) begin
    if (rst_i) new_q <= 1'b0;
    else new_q <= take;
  end

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      {begun_q, ended_q, some_q, lost_q, frame_bad_q} <= '0;
      {frame_arp_q, frame_ping_q, frame_datagram_q, frame_plain_q} <= '0;
      {wrong_q, unsummed_q, marked_q, sound_q, malformed_q, parts_q} <= '0;
      {client_q, model_q, deadline_q, frame_arrival_q, number_q, length_q, total_q} <= '0;
      place_q  <= '0;
      packet_q <= '0;
    end else if (take) begin
      packet_q    <= packet;
      place_q     <= beat;
      begun_q     <= first_q;
      ended_q     <= last_q;
      some_q      <= needed[0] && beat < FrameBeats;
      lost_q      <= cut || too_long;
      frame_bad_q <= bad_q;
      if (first_q) begin
        {frame_arp_q, frame_ping_q, frame_datagram_q, frame_plain_q} <= {arp_q, ping_q, datagram_q, plain_q};
        total_q         <= total;
        frame_arrival_q <= arrival_q;
        client_q        <= arp_q ? {beat_q[335-:80], 16'd0} : {beat_q[463-:48], beat_q[303-:32], beat_q[239-:16]};
        // A length that contradicts that of the packet; a checksum of 0 is none.
        wrong_q         <= (ping_q && total < 16'd28)
                        || (datagram_q && (total < 16'd28 || beat_q[207-:16] != total - 16'd20));
        unsummed_q      <= datagram_q && beat_q[191-:16] == '0;
        marked_q        <= beat_q[175-:32] == "LBIP" && beat_q[135-:8] == 8'd1 && total >= HeaderBytes;
        sound_q         <= beat_q[143-:8] == 8'd1 && (beat_q[127-:8] == 8'd1 || beat_q[127-:8] == 8'd2)
                        && beat_q[119-:8] == '0;
        model_q         <= beat_q[111-:32];
        deadline_q      <= beat_q[79-:32];
        number_q        <= {beat_q[47-:48], 16'd0};
        // Until its second beat has come, a header is not complete.
        malformed_q     <= 1'b1;
      end
      if (!first_q && beat == 5'd1) begin
        number_q[15:0] <= beat_q[511-:16];
        length_q       <= length;
        parts_q        <= fragments != 16'd1;
        malformed_q    <= !marked_q || !sound_q || fragment >= fragments || length != total_q - HeaderBytes
                       || ({1'b0, fragment} + 17'd1 < {1'b0, fragments} && total_q != 16'd1500)
                       || beat_q[447-:16] != '0;
      end
    end
  end

  assign model_o = model_q;

  // ---- The image: 64 bytes from byte 10 of a beat on; the last ones when the frame is over
  logic         image_write_q;
  logic [4:0]   image_word_q;
  logic [511:0] image_data_q;

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      image_write_q <= 1'b0;
      image_word_q  <= '0;
      image_data_q  <= '0;
    end else begin
      image_write_q <= frame_plain_q && place_q != '0 && (ended_q ? new_q : take);
      image_word_q  <= place_q - 5'd1;
      image_data_q  <= {ended_q ? 80'd0 : packet[79:0], packet_q[511:80]};
    end
  end

  assign image_write_o = image_write_q;
  assign image_word_o  = image_word_q;
  assign image_data_o  = image_data_q;

  // ---- Checksums. That of a datagram has a header of its own: protocol and length stand in for the first two words
  logic [511:0] words, summed;
  logic [15:0]  sum, heading_sum, total_sum_q;
  logic [16:0]  total_sum;
  logic         heading_good_q;
  logic [2:0]   new_line_q, begun_line_q;
  logic [4:0]   ended_line_q, plain_line_q;

  for (genvar i = 0; i < 32; i++) begin : gen_words
    assign words[16*i+:16] = {packet_q[16*i+:8], packet_q[16*i+8+:8]};
    if (i == 0) begin : gen_protocol
      assign summed[16*i+:16] = !begun_q ? words[16*i+:16] : frame_datagram_q ? 16'd17 : 16'd0;
    end else if (i == 1) begin : gen_length
      assign summed[16*i+:16] = !begun_q ? words[16*i+:16] : frame_datagram_q ? words[304+:16] : 16'd0;
    end else if (i < 13) begin : gen_none
      assign summed[16*i+:16] = begun_q ? 16'd0 : words[16*i+:16];
    end else if (i < 17) begin : gen_addresses
      assign summed[16*i+:16] = begun_q && !frame_datagram_q ? 16'd0 : words[16*i+:16];
    end else begin : gen_all
      assign summed[16*i+:16] = words[16*i+:16];
    end
  end

  ones_complement_sum #(
    .Words(32)
  ) u_sum (
    .clk_i,
    .rst_i,
    .words_i(summed),
    .sum_o(sum)
  );

  ones_complement_sum #(
    .Words(12)
  ) u_heading_sum (
    .clk_i,
    .rst_i,
    .words_i({32'd0, words[112+:160]}),
    .sum_o(heading_sum)
  );

  assign total_sum = {1'b0, begun_line_q[2] ? 16'd0 : total_sum_q} + {1'b0, sum};

  // Bit n, n + 1 cycles ago: a beat, a first beat, the end of a frame, and of a frame that looked like a request.
  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      new_line_q     <= '0;
      begun_line_q   <= '0;
      ended_line_q   <= '0;
      plain_line_q   <= '0;
      total_sum_q    <= '0;
      heading_good_q <= 1'b0;
    end else begin
      new_line_q   <= {new_line_q[1:0], new_q};
      begun_line_q <= {begun_line_q[1:0], begun_q};
      ended_line_q <= {ended_line_q[3:0], new_q && ended_q};
      plain_line_q <= {plain_line_q[3:0], frame_plain_q};
      if (new_line_q[2]) begin
        total_sum_q <= total_sum[15:0] + {15'd0, total_sum[16]};
        if (begun_line_q[2]) heading_good_q <= heading_sum == '1;
      end
    end
  end

  // ---- The frames of pings, and behind each the place of the next. One that gets no reply is passed over
  logic [EchoBits-1:0] echo_write_q, echo_read_q, echo_read, echo_used, echo_end, reply_end;
  logic                echo_write, passed;

  assign echo_write = new_q && frame_ping_q && some_q;
  assign echo_end   = echo_write_q + {{(EchoBits - 1) {1'b0}}, echo_write};
  assign echo_used  = echo_write_q - echo_read_q;

  word_memory #(
    .Width(512),
    .Depth(2 ** EchoBits),
    .AddressWidth(EchoBits)
  ) u_echo (
    .clk_i,
    .write_i(echo_write),
    .write_address_i(echo_write_q),
    .word_i(packet_q),
    .read_address_i(echo_read),
    .word_o(echo_o)
  );

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      echo_write_q <= '0;
      echo_read_q  <= '0;
    end else begin
      echo_write_q <= echo_end;
      echo_read_q  <= echo_read;
    end
  end

  always_comb begin
    if (passed) echo_read = reply_end;
    else if (echo_next_i) echo_read = echo_read_q + 1'b1;
    else echo_read = echo_read_q;
  end

  // ---- The verdict
  logic [FieldBits-1:0] fields, fields_q;
  logic [271:0]         request_q;
  logic [16:0]          table_entry;
  logic                 wrong, lost, unsummed, marked, malformed, parts, arp_frame, ping_frame, datagram_frame, bad;
  logic [15:0]          image_length;
  logic                 corrupt, reply;
  logic [7:0]           code;

  delay_line #(
    .Width(FieldBits),
    .Cycles(4)
  ) u_fields (
    .clk_i,
    .word_i({
      frame_ping_q, echo_end, frame_arrival_q, number_q, model_q, client_q, deadline_q
    }),
    .word_o(fields)
  );

  delay_line #(
    .Width(26),
    .Cycles(4)
  ) u_flags (
    .clk_i,
    .word_i({
      wrong_q, lost_q, unsummed_q, marked_q, malformed_q, parts_q,
      frame_arp_q, frame_ping_q, frame_datagram_q, frame_bad_q, length_q
    }),
    .word_o({
      wrong, lost, unsummed, marked, malformed, parts,
      arp_frame, ping_frame, datagram_frame, bad, image_length
    })
  );

  delay_line #(
    .Width(17),
    .Cycles(3)
  ) u_table (
    .clk_i,
    .word_i({known_i, inputs_i}),
    .word_o(table_entry)
  );

  assign corrupt = wrong || lost || (!arp_frame && !(heading_good_q && (unsummed || total_sum_q == '1)));

  packet_verdict u_verdict (
    .clk_i,
    .rst_i,
    .valid_i(ended_line_q[3]),
    .bad_i(bad),
    .arp_i(arp_frame),
    .ping_i(ping_frame),
    .datagram_i(datagram_frame),
    .corrupt_i(corrupt),
    .malformed_i(malformed),
    .marked_i(marked),
    .known_i(table_entry[16]),
    .suits_i(plain_line_q[3] && !parts && image_length == table_entry[15:0]),
    .outcome_o,
    .reply_o(reply),
    .code_o(code),
    .request_o(request_valid_o),
    .ready_i(request_ready_i)
  );

  // No frame that could be a request is read while one is in work, so a request keeps its fields.
  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      fields_q  <= '0;
      request_q <= '0;
    end else begin
      fields_q <= fields;
      if (ended_line_q[3] && !request_valid_o) request_q <= {image_length, fields[255:0]};
    end
  end

  assign request_deadline_us_o = request_q[31:0];
  assign request_client_o      = request_q[127:32];
  assign request_model_o       = request_q[159:128];
  assign request_number_o      = request_q[223:160];
  assign request_arrival_us_o  = request_q[255:224];
  assign request_inputs_o      = request_q[271:256];

  // ---- Replies, and frames of pings to pass over (0), wait for their turn
  logic       push, pop, waiting, decided, settled;
  logic [1:0] kind, reply_kind;

  assign decided = |outcome_o;
  assign settled = ended_line_q[4] && !push;
  assign push    = reply || (decided && fields_q[FieldBits-1]);

  assign kind = outcome_o[2] ? 2'd1 : outcome_o[3] ? 2'd2 : {2{reply}};

  beat_queue #(
    .Width(EchoBits + 234),
    .Depth(16),
    .PlaceWidth(4)
  ) u_replies (
    .clk_i,
    .rst_i,
    .clear_i(1'b0),
    .push_i(push),
    .word_i({fields_q[FieldBits-2:32], code, kind}),
    .pop_i(pop),
    .valid_o(waiting),
    .word_o({reply_end, reply_o})
  );

  assign reply_kind    = reply_o[1:0];
  assign reply_valid_o = waiting && reply_kind != 2'd0;
  assign pop           = waiting && (reply_kind == 2'd0 || reply_ready_i);
  assign passed        = pop && !reply_kind[0];

  // ---- Room. A frame owes a reply until it is known to have none, or until the reply is taken
  logic free_image;

  assign free_image = image_ready_i && !claimed_q;
  assign room = owed_q < Replies && (!plain_q || free_image)
             && (!ping_q || echo_used <= EchoLimit);

  always_ff @(posedge clk_i) begin
    if (rst_i) owed_q <= '0;
    else owed_q <= owed_q + {4'd0, take && first_q} - {4'd0, pop} - {4'd0, settled};
  end

  // From its first beat to its end as a request or otherwise a frame has the image buffer.
  always_ff @(posedge clk_i) begin
    if (rst_i) claimed_q <= 1'b0;
    else if (take && first_q && plain_q) claimed_q <= 1'b1;
    else if ((request_valid_o && request_ready_i) || (decided && plain_line_q[4])) claimed_q <= 1'b0;
  end

endmodule

// The fate of a frame: one outcome, or a request. The order of the checks is that of the packet server.
//
// valid_i: the flags are those of a whole frame; the outcome, the request and the reply come a cycle later. The outcomes
// from bit 0: ignored, corrupt, arp, ping, malformed, unknown model, refused. reply_o says that something is sent back,
// code_o with which code (0: an ARP or ping reply). request_o stays until ready_i; no other request comes meanwhile.
module packet_verdict (
  input  logic       clk_i,
  input  logic       rst_i,
  input  logic       valid_i,
  input  logic       bad_i,
  input  logic       arp_i,
  input  logic       ping_i,
  input  logic       datagram_i,
  input  logic       corrupt_i,
  input  logic       malformed_i,
  input  logic       marked_i,
  input  logic       known_i,
  input  logic       suits_i,
  output logic [6:0] outcome_o,
  output logic       reply_o,
  output logic [7:0] code_o,
  output logic       request_o,
  input  logic       ready_i
);

  logic [6:0] outcome, outcome_q;
  logic       reply, reply_q, request, request_q;
  logic [7:0] code, code_q;

  always_comb begin
    outcome = '0;
    request = 1'b0;
    // Without the frame check nothing in the frame is known, not even for whom it is.
    if (bad_i) outcome[1] = 1'b1;
    else if (!(arp_i || ping_i || datagram_i)) outcome[0] = 1'b1;
    else if (corrupt_i) outcome[1] = 1'b1;
    else if (arp_i) outcome[2] = 1'b1;
    else if (ping_i) outcome[3] = 1'b1;
    else if (malformed_i) outcome[4] = 1'b1;
    else if (!known_i) outcome[5] = 1'b1;
    else if (!suits_i) outcome[6] = 1'b1;
    else request = 1'b1;
  end

  // Malformed datagrams are answered only if they are marked as requests.
  assign reply = |outcome[6:5] || |outcome[3:2] || (outcome[4] && marked_i);
  assign code  = {5'd0, outcome[6], outcome[5], outcome[4]};

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      outcome_q <= '0;
      reply_q   <= 1'b0;
      request_q <= 1'b0;
      code_q    <= '0;
    end else begin
      outcome_q <= valid_i ? outcome : '0;
      reply_q   <= valid_i && reply;
      request_q <= (valid_i && request) || (request_q && !ready_i);
      code_q    <= code;
    end
  end

  assign outcome_o = outcome_q;
  assign reply_o   = reply_q;
  assign code_o    = code_q;
  assign request_o = request_q;

endmodule

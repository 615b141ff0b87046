// Each frame has one outcome or becomes a request, and nothing is sent back for a frame that does not ask for it.
module packet_verdict_checks (
  input logic       clk_i,
  input logic       rst_i,
  input logic       valid_i,
  input logic       bad_i,
  input logic       arp_i,
  input logic       ping_i,
  input logic       datagram_i,
  input logic       corrupt_i,
  input logic       malformed_i,
  input logic       marked_i,
  input logic       known_i,
  input logic       suits_i,
  input logic [6:0] outcome_o,
  input logic       reply_o,
  input logic [7:0] code_o,
  input logic       request_o,
  input logic       ready_i
);

  logic begun_q = 1'b0;
  logic reset_q, valid_q, bad_q, arp_q, ping_q, datagram_q, corrupt_q, malformed_q, marked_q, known_q, suits_q;
  logic held_q;

  always_ff @(posedge clk_i) begin
    begun_q     <= 1'b1;
    reset_q     <= rst_i;
    valid_q     <= valid_i;
    bad_q       <= bad_i;
    arp_q       <= arp_i;
    ping_q      <= ping_i;
    datagram_q  <= datagram_i;
    corrupt_q   <= corrupt_i;
    malformed_q <= malformed_i;
    marked_q    <= marked_i;
    known_q     <= known_i;
    suits_q     <= suits_i;
    held_q      <= request_o && !ready_i;
  end

  logic frame, sound, datagram;
  assign frame    = begun_q && !reset_q && valid_q;
  assign sound    = !bad_q && !corrupt_q;
  assign datagram = sound && datagram_q && !arp_q && !ping_q;

  always_comb begin
    if (begun_q && reset_q) resets: assert (outcome_o == '0 && !request_o && !reply_o);
    if (begun_q && (reset_q || !valid_q)) silent: assert (outcome_o == '0 && !reply_o);
    if (begun_q && !reset_q && !valid_q) same: assert (request_o == held_q);
    if (begun_q && !reset_q && held_q) stays: assert (request_o);
    // One outcome, or a request.
    if (frame) at_most: assert ((outcome_o & (outcome_o - 1'b1)) == '0);
    if (frame && outcome_o == '0) least: assert (request_o);
    if (frame && outcome_o != '0 && !held_q) either: assert (!request_o);
    // No request that is not one, and no reply to what does not ask.
    if (frame && !held_q && request_o) asks: assert (datagram && !malformed_q && known_q && suits_q);
    if (frame && reply_o) replies: assert (sound && (arp_q || ping_q || (datagram && (marked_q || !malformed_q))));
    if (frame && reply_o) has: assert (|outcome_o[6:2]);
    if (frame && |outcome_o[3:2]) serves: assert (reply_o && code_o == '0);
    if (frame && |outcome_o[6:5]) refuses: assert (reply_o && code_o == (outcome_o[5] ? 8'd2 : 8'd4));
    if (frame && outcome_o[4]) malforms: assert (reply_o == marked_q && code_o == 8'd1);
    if (frame && |outcome_o[1:0]) drops: assert (!reply_o);
    // The order of the checks.
    if (frame && sound && malformed_q && datagram) before_model: assert (outcome_o[4]);
    if (frame && datagram && !malformed_q && !known_q) before_input: assert (outcome_o[5]);
    if (frame && bad_q) unknown: assert (outcome_o[1]);
    if (frame && !bad_q && !arp_q && !ping_q && !datagram_q) foreign: assert (outcome_o[0]);
  end

endmodule

// A source that is chosen gets one whole frame, and there is no frame without one that was chosen.
module answer_turns_checks #(
  parameter int Prepare = 3
) (
  input logic clk_i,
  input logic rst_i,
  input logic answer_valid_i,
  input logic answer_ready_o,
  input logic reply_valid_i,
  input logic reply_ready_o,
  input logic choose_o,
  input logic answer_o,
  input logic begin_o,
  input logic valid_o,
  input logic first_o,
  input logic ready_i,
  input logic last_i,
  input logic [Prepare-1:0] prepare_i,
  input logic idle_i
);

  // A frame is open from its choice to its last beat; it is that of an answer or of a reply.
  logic known_q = 1'b0;
  logic reset_q, open_q, owner_q, offered_q, taken_q, begun_q;
  logic ends;

  assign ends = answer_ready_o || reply_ready_o;

  always_ff @(posedge clk_i) begin
    known_q   <= 1'b1;
    reset_q   <= rst_i;
    open_q    <= !rst_i && (choose_o || (open_q && !ends));
    offered_q <= !rst_i && valid_o && !ends;
    begun_q   <= !rst_i && begin_o;
    taken_q   <= !rst_i && !ends && ((valid_o && ready_i) || taken_q);
    if (rst_i) owner_q <= 1'b0;
    else if (choose_o) owner_q <= answer_o;
  end

  // What is prepared is one frame.
  logic preparing;
  assign preparing = |prepare_i;

  always_comb begin
    if (known_q) begin
      if (reset_q) resets: assert (!valid_o && !open_q && !preparing);
      // No frame without a source that waits, and none while another is open.
      if (choose_o) chooses: assert (!open_q && (answer_o ? answer_valid_i : reply_valid_i));
      if (valid_o || begin_o) opens: assert (open_q);
      states: assert (open_q == (preparing || valid_o) && open_q == !idle_i);
      single: assert ((prepare_i & (prepare_i - 1'b1)) == '0 && !(preparing && valid_o));
      // One frame: it goes on until the source is told, with its last beat.
      if (ends) tells: assert (valid_o && ready_i && last_i && open_q);
      if (valid_o && ready_i && last_i) finishes: assert (answer_ready_o == owner_q && reply_ready_o == !owner_q);
      if (!reset_q) offers: assert (valid_o == (offered_q || begun_q));
      if (valid_o) firsts: assert (first_o == !taken_q);
      // It is the turn of the other.
      if (!choose_o) owns: assert (answer_o == owner_q);
      if (choose_o && answer_valid_i && reply_valid_i) turns: assert (answer_o == !owner_q);
      if (!open_q && (answer_valid_i || reply_valid_i)) serves: assert (choose_o);
      if (!valid_o) nothing: assert (!taken_q && !ends);
    end
  end

endmodule

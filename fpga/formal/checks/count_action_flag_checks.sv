// A flag is 1 after a set, 0 after a clear alone (or with ClearWins any clear), and else what it was (R6, R9).
module count_action_flag_checks #(
  parameter bit ClearWins = 1'b0
) (
  input logic clk_i,
  input logic rst_i,
  input logic set_i,
  input logic clear_i,
  input logic flag_o
);

  logic known_q = 1'b0;
  logic reset_q, set_q, clear_q, flag_q;

  always_ff @(posedge clk_i) begin
    known_q <= 1'b1;
    reset_q <= rst_i;
    set_q   <= set_i;
    clear_q <= clear_i;
    flag_q  <= flag_o;
  end

  always_comb begin
    if (known_q && reset_q) resets: assert (!flag_o);
    if (known_q && !reset_q && set_q && !(ClearWins && clear_q)) sets: assert (flag_o);
    if (known_q && !reset_q && clear_q && (ClearWins || !set_q)) clears: assert (!flag_o);
    if (known_q && !reset_q && !set_q && !clear_q) holds: assert (flag_o == flag_q);
  end

endmodule

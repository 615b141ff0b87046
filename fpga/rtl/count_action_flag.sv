// One bit that actions set and clear; set wins, or with ClearWins clear (R9). With clear_i at 1 it is a pulse of one
// cycle (R6).
module count_action_flag #(
  parameter bit ClearWins = 1'b0
) (
  input  logic clk_i,
  input  logic rst_i,
  input  logic set_i,
  input  logic clear_i,
  output logic flag_o
);

  logic flag_q;

  always_ff @(posedge clk_i) begin
    if (rst_i) flag_q <= 1'b0;
    else if (ClearWins) flag_q <= (set_i || flag_q) && !clear_i;
    else flag_q <= set_i || (flag_q && !clear_i);
  end

  assign flag_o = flag_q;

endmodule

// Holds a datapath in reset from hold_i until commit_i, so that its first cycle already has the targets that were loaded.
module datapath_hold (
  input  logic clk_i,
  input  logic rst_i,
  input  logic hold_i,
  input  logic commit_i,
  output logic held_o
);

  logic held_q;

  always_ff @(posedge clk_i) begin
    if (rst_i) held_q <= 1'b0;
    else held_q <= hold_i || (held_q && !commit_i);
  end

  assign held_o = held_q;

endmodule

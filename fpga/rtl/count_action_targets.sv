// All targets in force of a datapath, side by side. COMMIT replaces every one in the same edge (R8), in reset too (R12).
module count_action_targets #(
  parameter int Width = 16,
  parameter bit [Width-1:0] Reset = '0
) (
  input  logic             clk_i,
  input  logic             rst_i,
  input  logic             commit_i,
  input  logic [Width-1:0] shadow_i,
  output logic [Width-1:0] target_o
);

  logic [Width-1:0] target_q;

  always_ff @(posedge clk_i) begin
    if (commit_i) target_q <= shadow_i;
    else if (rst_i) target_q <= Reset;
  end

  assign target_o = target_q;

endmodule

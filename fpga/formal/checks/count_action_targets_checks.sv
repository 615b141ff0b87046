// All targets change together, in the cycle after a commit, and at no other time (R8, R12).
module count_action_targets_checks #(
  parameter int Width = 16,
  parameter bit [Width-1:0] Reset = '0
) (
  input logic             clk_i,
  input logic             rst_i,
  input logic             commit_i,
  input logic [Width-1:0] shadow_i,
  input logic [Width-1:0] target_o
);

  logic             known_q = 1'b0;
  logic             reset_q, commit_q;
  logic [Width-1:0] shadow_q, target_q;

  always_ff @(posedge clk_i) begin
    known_q  <= 1'b1;
    reset_q  <= rst_i;
    commit_q <= commit_i;
    shadow_q <= shadow_i;
    target_q <= target_o;
  end

  always_comb begin
    if (known_q && reset_q && !commit_q) begins: assert (target_o == Reset);
    if (known_q && commit_q) commits: assert (target_o == shadow_q);
    if (known_q && !reset_q && !commit_q) holds: assert (target_o == target_q);
    commit: cover (known_q && !reset_q && commit_q && shadow_q != target_q);
  end

endmodule

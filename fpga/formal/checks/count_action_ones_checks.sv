// How many bits are 1, counted from the other end and without loss (R1).
module count_action_ones_checks #(
  parameter int Bits = 2,
  parameter int Width = 2
) (
  input logic             clk_i,
  input logic             rst_i,
  input logic [Bits-1:0]  bits_i,
  input logic [Width-1:0] ones_o
);

  int ones;

  always_comb begin
    ones = 0;
    for (int i = Bits - 1; i >= 0; i--) if (bits_i[i]) ones = ones + 1;
    counts: assert ({{(32 - Width) {1'b0}}, ones_o} == ones);
  end

  logic unused;
  assign unused = clk_i ^ rst_i;

endmodule

// Twice the mean is the sum of both samples, or one less.
module pairwise_means_checks #(
  parameter int Positions = 8,
  parameter int Distance = 1,
  parameter int Width = 4
) (
  input logic                       clk_i,
  input logic                       rst_i,
  input logic [Positions*Width-1:0] samples_i,
  input logic [Positions*Width-1:0] means_o
);

  logic                       known_q = 1'b0;
  logic                       reset_q;
  logic [Positions*Width-1:0] samples_q;

  always_ff @(posedge clk_i) begin
    known_q   <= 1'b1;
    reset_q   <= rst_i;
    samples_q <= samples_i;
  end

  logic [Positions-1:0] exact;

  for (genvar i = 0; i < Positions; i++) begin : gen_positions
    logic [Width:0] sum, twice;

    assign sum   = samples_q[i*Width+:Width] + samples_q[((i+Distance)%Positions)*Width+:Width];
    assign twice = {means_o[i*Width+:Width], sum[0]};
    assign exact[i] = twice == sum;
  end

  always_comb begin
    if (known_q && !reset_q) means: assert (&exact);
  end

endmodule

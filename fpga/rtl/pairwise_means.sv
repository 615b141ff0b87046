// One stage of a mean tree: of every two samples that stand Distance apart the mean, rounded down.
//
// Positions wrap: the last Distance means mix both ends, and whoever uses them is wrong.
module pairwise_means #(
  parameter int Positions = 32,
  parameter int Distance = 1,
  parameter int Width = 16
) (
  input  logic                       clk_i,
  input  logic                       rst_i,
  input  logic [Positions*Width-1:0] samples_i,
  output logic [Positions*Width-1:0] means_o
);

  logic [Positions*Width-1:0] means_q, means;

  for (genvar i = 0; i < Positions; i++) begin : gen_positions
    localparam int Other = (i + Distance) % Positions;
    logic [Width-1:0] first, second;

    assign first  = samples_i[i*Width+:Width];
    assign second = samples_i[Other*Width+:Width];
    // The bits that both have, and half of those that one has: no bit more than a sample.
    assign means[i*Width+:Width] = (first & second) + ((first ^ second) >> 1);
  end

  always_ff @(posedge clk_i) begin
    if (rst_i) means_q <= '0;
    else means_q <= means;
  end

  assign means_o = means_q;

endmodule

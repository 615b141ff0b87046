// Light has no sign: what comes back is a magnitude, which here gets the sign of its weight (1: not negative).
//
// A product of which keep_i is 0 becomes 0: it was to be 0, and what came back is noise.
module signed_products #(
  parameter int Lanes = 16,
  parameter int Width = 8
) (
  input  logic                       clk_i,
  input  logic                       rst_i,
  input  logic [Lanes*Width-1:0]     magnitudes_i,
  input  logic [Lanes-1:0]           signs_i,
  input  logic [Lanes-1:0]           keep_i,
  output logic [Lanes*(Width+1)-1:0] products_o
);

  for (genvar i = 0; i < Lanes; i++) begin : gen_lanes
    logic [Width:0] magnitude, product_q;

    assign magnitude = keep_i[i] ? {1'b0, magnitudes_i[i*Width+:Width]} : '0;

    always_ff @(posedge clk_i) begin
      if (rst_i) product_q <= '0;
      else product_q <= signs_i[i] ? magnitude : -magnitude;
    end

    assign products_o[i*(Width+1)+:Width+1] = product_q;
  end

endmodule

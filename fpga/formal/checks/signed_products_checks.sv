// Each magnitude of the cycle before with the sign of its weight, or 0 where it is not kept.
module signed_products_checks #(
  parameter int Lanes = 4,
  parameter int Width = 4
) (
  input logic                       clk_i,
  input logic                       rst_i,
  input logic [Lanes*Width-1:0]     magnitudes_i,
  input logic [Lanes-1:0]           signs_i,
  input logic [Lanes-1:0]           keep_i,
  input logic [Lanes*(Width+1)-1:0] products_o
);

  logic                   known_q = 1'b0;
  logic                   reset_q;
  logic [Lanes*Width-1:0] magnitudes_q;
  logic [Lanes-1:0]       signs_q, keep_q;

  always_ff @(posedge clk_i) begin
    known_q      <= 1'b1;
    reset_q      <= rst_i;
    magnitudes_q <= magnitudes_i;
    signs_q      <= signs_i;
    keep_q       <= keep_i;
  end

  logic [Lanes-1:0] zero, positive, negative;

  for (genvar i = 0; i < Lanes; i++) begin : gen_lanes
    logic [Width:0] magnitude, product;

    assign magnitude = {1'b0, magnitudes_q[i*Width+:Width]};
    assign product   = products_o[i*(Width+1)+:Width+1];

    assign zero[i]     = product == '0;
    assign positive[i] = product == magnitude;
    assign negative[i] = product + magnitude == '0;
  end

  always_comb begin
    if (known_q && reset_q) resets: assert (&zero);
    if (known_q && !reset_q) drops: assert (&(keep_q | zero));
    if (known_q && !reset_q) passes: assert (&(~keep_q | ~signs_q | positive));
    if (known_q && !reset_q) negates: assert (&(~keep_q | signs_q | negative));
  end

endmodule

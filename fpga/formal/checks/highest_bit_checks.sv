// The bit at the place is set and none above it is; without a set bit the place is 0.
module highest_bit_checks #(
  parameter int Width = 16,
  parameter int PlaceWidth = 4
) (
  input logic                  clk_i,
  input logic                  rst_i,
  input logic [Width-1:0]      word_i,
  input logic [PlaceWidth-1:0] place_o
);

  logic [Width-1:0] shifted;
  assign shifted = word_i >> place_o;

  always_comb begin
    if (word_i == '0) none: assert (place_o == '0);
    if (word_i != '0) highest: assert (shifted == {{(Width - 1) {1'b0}}, 1'b1});
  end

  logic unused;
  assign unused = clk_i ^ rst_i;

endmodule

// A result as the activation of the next layer, four cycles later; negative ones become 0 (ReLU).
//
// Shifted so that bit highest_i becomes bit 7, or with perfect_i multiplied by 255 / largest as float64 does it: the product
// with the factor of perfect_factor is exact here, and float64's rounding to 53 bits matters only where it meets a half.
module scaled_activation (
  input  logic        clk_i,
  input  logic        perfect_i,
  input  logic [19:0] result_i,
  input  logic [4:0]  highest_i,
  input  logic [4:0]  places_i,
  input  logic [53:0] factor_i,
  output logic [7:0]  activation_o
);

  // ---- 1: shifted, or moved to the place that the factor is for
  logic [7:0]  shifted, shifted_1_q;
  logic [19:0] moved_1_q;

  normalised_activation #(
    .Width(20),
    .PlaceWidth(5)
  ) u_shifted (
    .result_i,
    .highest_i,
    .activation_o(shifted)
  );

  always_ff @(posedge clk_i) begin
    shifted_1_q <= shifted;
    moved_1_q   <= result_i[19] ? '0 : result_i << places_i;
  end

  // ---- 2, 3: the product, in two parts
  logic [46:0] low_2_q, high_2_q;
  logic [73:0] product_3_q;
  logic [7:0]  shifted_2_q, shifted_3_q;

  always_ff @(posedge clk_i) begin
    low_2_q     <= {27'd0, moved_1_q} * {20'd0, factor_i[26:0]};
    high_2_q    <= {27'd0, moved_1_q} * {20'd0, factor_i[53:27]};
    product_3_q <= {27'd0, low_2_q} + {high_2_q, 27'd0};
    shifted_2_q <= shifted_1_q;
    shifted_3_q <= shifted_2_q;
  end

  // ---- 4: rounded; 65 bits are behind the point
  logic [8:0]  whole;
  logic [64:0] fraction;
  logic [3:0]  place;
  logic [20:0] distance, reach;
  logic        above, near, tie, up;
  logic [7:0]  activation_4_q;

  assign {whole, fraction} = product_3_q;

  highest_bit #(
    .Width(9),
    .PlaceWidth(4)
  ) u_place (
    .word_i(whole),
    .place_o(place)
  );

  // Float64 gives a half for all that is within half its last bit, whose weight follows from the highest bit.
  assign above    = fraction[64];
  assign near     = above ? fraction[63:20] == '0 : fraction[63:20] == '1;
  assign distance = above ? {1'b0, fraction[19:0]} : 21'h10_0000 - {1'b0, fraction[19:0]};
  assign reach    = whole == '0 ? 21'd1 << 11 : 21'd1 << (5'd12 + {1'b0, place});
  assign tie      = near && distance <= reach;
  assign up       = tie ? whole[0] : above;

  always_ff @(posedge clk_i) activation_4_q <= perfect_i ? whole[7:0] + {7'd0, up} : shifted_3_q;

  assign activation_o = activation_4_q;

endmodule

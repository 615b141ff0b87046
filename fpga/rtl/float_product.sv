// A whole number times a scale as a float, rounded to nearest, ties to even: float32(whole) * scale of numpy.
//
// The scale and the product must be normal; a product of 0 is +0. One product a cycle, Latency 7 cycles.
module float_product #(
  parameter int Whole = 24,
  parameter int Mantissa = 24,
  parameter int Exponent = 8
) (
  input  logic                         clk_i,
  input  logic                         rst_i,
  input  logic                         valid_i,
  input  logic [Whole-1:0]             whole_i,
  input  logic [Mantissa+Exponent-1:0] scale_i,
  output logic                         valid_o,
  output logic [Mantissa+Exponent-1:0] product_o
);

  // A mantissa includes its leading 1, which a float leaves out.
  localparam int Latency = 7;
  localparam int Fraction = Mantissa - 1;
  localparam int Wide = Whole + Mantissa;
  localparam int ShiftWidth = $clog2(Whole);

  // 1: sign and magnitude.
  logic                sign_1_q;
  logic [Whole-1:0]    magnitude_1_q;
  logic [Mantissa-1:0] scale_1_q;
  logic [Exponent-1:0] exponent_1_q;

  always_ff @(posedge clk_i) begin
    sign_1_q      <= whole_i[Whole-1] ^ scale_i[Mantissa+Exponent-1];
    magnitude_1_q <= whole_i[Whole-1] ? -whole_i : whole_i;
    scale_1_q     <= {1'b1, scale_i[Fraction-1:0]};
    exponent_1_q  <= scale_i[Fraction+:Exponent];
  end

  // 2 and 3: shifted so that its highest bit is the top one, by halving steps; the larger ones come first.
  localparam int Early = ShiftWidth / 2;
  localparam logic [Exponent-1:0] Top = Exponent'(Whole - 1);

  logic [Whole-1:0]      shifted[ShiftWidth+1];
  logic [ShiftWidth-1:0] shift;

  logic                  sign_2_q, zero_2_q, sign_3_q, zero_3_q;
  logic [Whole-1:0]      magnitude_2_q, magnitude_3_q;
  logic [Early-1:0]      shift_2_q;
  logic [ShiftWidth-1:0] shift_3_q;
  logic [Mantissa-1:0]   scale_2_q, scale_3_q;
  logic [Exponent-1:0]   exponent_2_q, exponent_3_q;

  for (genvar i = 0; i < ShiftWidth; i++) begin : gen_shifts
    localparam int Distance = 1 << (ShiftWidth - 1 - i);
    logic [Whole-1:0] magnitude;

    if (i == 0) begin : gen_first
      assign magnitude = magnitude_1_q;
    end else if (i == Early) begin : gen_registered
      assign magnitude = magnitude_2_q;
    end else begin : gen_next
      assign magnitude = shifted[i];
    end
    assign shift[ShiftWidth-1-i] = magnitude[Whole-1-:Distance] == '0;
    assign shifted[i+1] = shift[ShiftWidth-1-i] ? magnitude << Distance : magnitude;
  end
  assign shifted[0] = '0;

  always_ff @(posedge clk_i) begin
    sign_2_q      <= sign_1_q;
    zero_2_q      <= magnitude_1_q == '0;
    magnitude_2_q <= shifted[Early];
    shift_2_q     <= shift[ShiftWidth-1-:Early];
    scale_2_q     <= scale_1_q;
    exponent_2_q  <= exponent_1_q;
    sign_3_q      <= sign_2_q;
    zero_3_q      <= zero_2_q;
    magnitude_3_q <= shifted[ShiftWidth];
    shift_3_q     <= {shift_2_q, shift[ShiftWidth-Early-1:0]};
    scale_3_q     <= scale_2_q;
    exponent_3_q  <= exponent_2_q;
  end

  // 4 and 5: the product. The second register lies within the multiplier, which tools split.
  logic                sign_4_q, zero_4_q, sign_5_q, zero_5_q;
  logic [Wide-1:0]     wide_4_q, wide_5_q;
  logic [Exponent-1:0] exponent_4_q, exponent_5_q;

  always_ff @(posedge clk_i) begin
    sign_4_q     <= sign_3_q;
    zero_4_q     <= zero_3_q;
    wide_4_q     <= Wide'(magnitude_3_q) * Wide'(scale_3_q);
    exponent_4_q <= exponent_3_q + Top - Exponent'(shift_3_q);
    sign_5_q     <= sign_4_q;
    zero_5_q     <= zero_4_q;
    wide_5_q     <= wide_4_q;
    exponent_5_q <= exponent_4_q;
  end

  // 6: the product of two numbers in [1, 2) is in [1, 4); from 2 on its exponent is one more.
  logic                sign_6_q, zero_6_q, up_6_q;
  logic [Wide-2:0]     normal;
  logic                half, rest, up;
  logic [Fraction-1:0] fraction_6_q;
  logic [Exponent-1:0] exponent_6_q;

  assign normal  = wide_5_q[Wide-1] ? wide_5_q[Wide-2:0] : {wide_5_q[Wide-3:0], 1'b0};
  assign half    = normal[Whole-1];
  assign rest    = |normal[Whole-2:0];
  assign up      = half && (rest || normal[Whole]);

  always_ff @(posedge clk_i) begin
    sign_6_q     <= sign_5_q;
    zero_6_q     <= zero_5_q;
    up_6_q       <= up;
    fraction_6_q <= normal[Whole+:Fraction];
    exponent_6_q <= exponent_5_q + Exponent'(wide_5_q[Wide-1]);
  end

  // 7: rounded; a fraction that overflows becomes 0 and carries into the exponent.
  logic [Exponent+Fraction-1:0] rounded;
  logic [Mantissa+Exponent-1:0] product_q;
  logic [Latency-1:0]           valid_q;

  assign rounded = {exponent_6_q, fraction_6_q} + (Exponent + Fraction)'(up_6_q);

  always_ff @(posedge clk_i) begin
    valid_q <= rst_i ? '0 : {valid_q[Latency-2:0], valid_i};
    if (rst_i || zero_6_q || !valid_q[Latency-2]) product_q <= '0;
    else product_q <= {sign_6_q, rounded};
  end

  assign valid_o   = valid_q[Latency-1];
  assign product_o = product_q;

endmodule

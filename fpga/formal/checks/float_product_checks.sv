// The product is the nearest float to whole * scale of Latency cycles ago, of two equally near the even one.
//
// In units of the last place of the scale: exact = |whole| * mantissa, and the product is mantissa << its exponent.
module float_product_checks #(
  parameter int Whole = 6,
  parameter int Mantissa = 5,
  parameter int Exponent = 4
) (
  input logic                         clk_i,
  input logic                         rst_i,
  input logic                         valid_i,
  input logic [Whole-1:0]             whole_i,
  input logic [Mantissa+Exponent-1:0] scale_i,
  input logic                         valid_o,
  input logic [Mantissa+Exponent-1:0] product_o
);

  localparam int Latency = 7;
  localparam int Fraction = Mantissa - 1;
  // Four times the largest product has room.
  localparam int Wide = Whole + Mantissa + 4;

  logic                         known_q = 1'b0;
  logic [Latency-1:0]           valid_q = '0;
  logic [Whole-1:0]             whole_q[Latency];
  logic [Mantissa+Exponent-1:0] scale_q[Latency];

  always_ff @(posedge clk_i) begin
    known_q <= 1'b1;
    valid_q <= rst_i ? '0 : {valid_q[Latency-2:0], valid_i};
  end

  for (genvar s = 0; s < Latency; s++) begin : gen_delay
    always_ff @(posedge clk_i) begin
      whole_q[s] <= s == 0 ? whole_i : whole_q[s==0?0 : s-1];
      scale_q[s] <= s == 0 ? scale_i : scale_q[s==0?0 : s-1];
    end
  end

  logic [Whole-1:0]             whole, magnitude;
  logic [Mantissa+Exponent-1:0] scale;
  logic [Exponent:0]            higher;
  logic                         applies, nonzero;
  logic [Wide-1:0]              exact, found, last, difference;

  assign whole      = whole_q[Latency-1];
  assign scale      = scale_q[Latency-1];
  assign magnitude  = whole[Whole-1] ? -whole : whole;
  assign exact      = Wide'({1'b1, scale[Fraction-1:0]}) * Wide'(magnitude);
  assign higher     = {1'b0, product_o[Fraction+:Exponent]} - {1'b0, scale[Fraction+:Exponent]};
  assign last       = Wide'(1) << higher;
  assign found      = Wide'({1'b1, product_o[Fraction-1:0]}) << higher;
  assign difference = exact > found ? exact - found : found - exact;
  // The largest exponents are left out: the product would be beyond them.
  assign applies    = valid_q[Latency-1]
      && {1'b0, scale[Fraction+:Exponent]} + (Exponent + 1)'(Whole) < (Exponent + 1)'(1 << Exponent);
  assign nonzero    = applies && whole != '0;

  always_comb begin
    if (known_q) flows: assert (valid_o == valid_q[Latency-1]);
    if (known_q && !valid_o) rests: assert (product_o == '0);
    if (applies && whole == '0) zero: assert (product_o == '0);
    if (nonzero) signs: assert (product_o[Mantissa+Exponent-1] == (whole[Whole-1] ^ scale[Mantissa+Exponent-1]));
    if (nonzero) grows: assert (higher <= (Exponent + 1)'(Whole));
    if (nonzero) nearest: assert (2 * difference <= last);
    if (nonzero && 2 * difference == last) even: assert (!product_o[0]);
    // Below a power of two the floats are twice as close.
    if (nonzero && exact < found && product_o[Fraction-1:0] == '0) below: assert (4 * difference <= last);
  end

endmodule

// The steps are the quotient of Latency cycles ago, divided in full, rounded to a float, then to a whole number, then
// clipped.
module float_steps_checks #(
  parameter int Bits = 2,
  parameter int Mantissa = 4,
  parameter int Exponent = 3
) (
  input logic                         clk_i,
  input logic                         rst_i,
  input logic                         valid_i,
  input logic [Mantissa+Exponent-1:0] real_i,
  input logic [Mantissa+Exponent-1:0] step_i,
  input logic                         valid_o,
  input logic [Bits-1:0]              steps_o
);

  localparam int Latency = Bits + 6;
  localparam int Fraction = Mantissa - 1;
  // The quotient has Point bits behind the point; the smallest one has more bits than a float and its half.
  localparam int Span = 1 << Exponent;
  localparam int Point = Span + Mantissa + 1;
  localparam int Wide = Mantissa + Span + Point;

  logic                         known_q = 1'b0;
  logic [Latency-1:0]           valid_q = '0;
  logic [Mantissa+Exponent-1:0] real_q[Latency];
  logic [Mantissa+Exponent-1:0] step_q[Latency];

  always_ff @(posedge clk_i) begin
    known_q <= 1'b1;
    valid_q <= rst_i ? '0 : {valid_q[Latency-2:0], valid_i};
  end

  for (genvar s = 0; s < Latency; s++) begin : gen_delay
    always_ff @(posedge clk_i) begin
      real_q[s] <= s == 0 ? real_i : real_q[s==0?0 : s-1];
      step_q[s] <= s == 0 ? step_i : step_q[s==0?0 : s-1];
    end
  end

  logic [Mantissa+Exponent-1:0] dividend, divisor;
  logic [Wide-1:0]              raised, quotient, left;
  logic [Wide-1:0]              cut, lost, floated, whole, rest, rounded;
  logic                         applies, positive;
  integer                       place;

  assign dividend = real_q[Latency-1];
  assign divisor  = step_q[Latency-1];
  assign positive = dividend[Mantissa+Exponent-1] == divisor[Mantissa+Exponent-1] && dividend[Fraction+:Exponent] != '0;
  assign applies  = valid_q[Latency-1] && divisor[Fraction+:Exponent] != '0;
  assign raised   = Wide'({1'b1, dividend[Fraction-1:0]})
      << (Point + 32'(dividend[Fraction+:Exponent]) - 32'(divisor[Fraction+:Exponent]));
  assign quotient = raised / Wide'({1'b1, divisor[Fraction-1:0]});
  assign left     = raised % Wide'({1'b1, divisor[Fraction-1:0]});

  always_comb begin
    place = 0;
    for (int i = 0; i < Wide; i++) if (quotient[i]) place = i;
  end

  // To a float: the bits behind its last one, and a remainder, decide.
  assign cut     = (quotient >> (place - Fraction)) << (place - Fraction);
  assign lost    = quotient - cut;
  assign floated = lost > (Wide'(1) << (place - Mantissa)) || (lost == (Wide'(1) << (place - Mantissa))
      && (left != '0 || quotient[place-Fraction])) ? cut + (Wide'(1) << (place - Fraction)) : cut;
  // To a whole number.
  assign whole   = floated >> Point;
  assign rest    = floated - (whole << Point);
  assign rounded = rest > (Wide'(1) << (Point - 1)) || (rest == (Wide'(1) << (Point - 1)) && whole[0]) ? whole + 1'b1
      : whole;

  always_comb begin
    if (known_q) flows: assert (valid_o == valid_q[Latency-1]);
    if (known_q && !valid_o) rests: assert (steps_o == '0);
    if (applies && !positive) zero: assert (steps_o == '0);
    if (applies && positive && rounded < Wide'(1 << Bits)) rounds: assert (Wide'(steps_o) == rounded);
    if (applies && positive && rounded >= Wide'(1 << Bits)) clips: assert (&steps_o);
  end

endmodule

// A real number in steps, rounded and clipped: clip(rint(float32(real / step)), 0, 255) of numpy, both ties to even.
//
// Both are floats, the step normal, the real number normal or 0. One a cycle, Latency 14 cycles.
// The divider finds only the bits down to a half. Its remainder says whether the quotient, rounded to a float, is
// exactly that half, hence a tie.
module float_steps #(
  parameter int Bits = 8,
  parameter int Mantissa = 24,
  parameter int Exponent = 8
) (
  input  logic                         clk_i,
  input  logic                         rst_i,
  input  logic                         valid_i,
  input  logic [Mantissa+Exponent-1:0] real_i,
  input  logic [Mantissa+Exponent-1:0] step_i,
  output logic                         valid_o,
  output logic [Bits-1:0]              steps_o
);

  // Quotients below 2 ** (Bits + 1) are divided: Bits + 1 bits of a whole number, and the half.
  localparam int Places = Bits + 2;
  localparam int Latency = Places + 4;
  localparam int Fraction = Mantissa - 1;
  localparam int LastWidth = $clog2(Places);
  localparam logic [Exponent:0] Beyond = (Exponent + 1)'(Places);

  // The mantissas' quotient is in (1/2, 2), so the exponents say which bits it has: those from place 0 to last, the
  // half. What is negative or below a half is 0, what is above 2 ** Bits is full.
  logic [Exponent:0]    difference;
  logic                 negative, zero_1_q, full_1_q;
  logic [LastWidth-1:0] last_1_q;
  logic [Mantissa-1:0]  rest_1_q, divisor_1_q;

  assign negative   = real_i[Mantissa+Exponent-1] ^ step_i[Mantissa+Exponent-1];
  assign difference = {1'b0, real_i[Fraction+:Exponent]} - {1'b0, step_i[Fraction+:Exponent]} + 1'b1;

  always_ff @(posedge clk_i) begin
    zero_1_q    <= negative || real_i[Fraction+:Exponent] == '0 || difference[Exponent];
    full_1_q    <= difference >= Beyond;
    last_1_q    <= difference[LastWidth-1:0];
    rest_1_q    <= {1'b1, real_i[Fraction-1:0]};
    divisor_1_q <= {1'b1, step_i[Fraction-1:0]};
  end

  // A bit of the quotient in each stage, from the highest on. The stages behind the last bit only pass all on.
  logic                 zero[Places+1], full[Places+1];
  logic [LastWidth-1:0] last[Places+1];
  logic [Mantissa-1:0]  rest[Places+1], divisor[Places+1];
  logic [Places-1:0]    halves[Places+1];

  assign zero[0]    = zero_1_q;
  assign full[0]    = full_1_q;
  assign last[0]    = last_1_q;
  assign rest[0]    = rest_1_q;
  assign divisor[0] = divisor_1_q;
  assign halves[0]  = '0;

  for (genvar i = 0; i < Places; i++) begin : gen_places
    logic                 divides, zero_q, full_q;
    logic [LastWidth-1:0] last_q;
    logic [Mantissa:0]    dividend, less;
    logic [Mantissa-1:0]  rest_q, divisor_q;
    logic [Places-1:0]    halves_q;

    if (i == 0) begin : gen_first
      assign divides  = 1'b1;
      assign dividend = {1'b0, rest[i]};
    end else begin : gen_next
      assign divides  = last[i] >= i[LastWidth-1:0];
      assign dividend = {rest[i], 1'b0};
    end
    // Never as much as twice the divisor: a top bit is a borrow.
    assign less = dividend - {1'b0, divisor[i]};

    always_ff @(posedge clk_i) begin
      zero_q    <= zero[i];
      full_q    <= full[i];
      last_q    <= last[i];
      divisor_q <= divisor[i];
      halves_q  <= divides ? {halves[i][Places-2:0], !less[Mantissa]} : halves[i];
      if (!divides) rest_q <= rest[i];
      else rest_q <= less[Mantissa] ? dividend[Mantissa-1:0] : less[Mantissa-1:0];
    end

    assign zero[i+1]    = zero_q;
    assign full[i+1]    = full_q;
    assign last[i+1]    = last_q;
    assign rest[i+1]    = rest_q;
    assign divisor[i+1] = divisor_q;
    assign halves[i+1]  = halves_q;
  end

  // Twice the quotient is halves + rest / divisor. It is rounded to a float that is an odd number of halves if it is no
  // farther from it than half of the float's last place, here 2 ** (k - Fraction) for a quotient from 2 ** k on. Distance
  // and reach are both times the divisor. Below 1 only the half itself is a tie, so the reach is 0.
  logic                zero_2_q, full_2_q;
  logic [Places-1:0]   halves_2_q;
  logic [Mantissa-1:0] distance_2_q;
  logic [Bits-1:0]     reach[Bits+1];
  logic [Bits-1:0]     reach_2_q;

  assign reach[0] = '0;
  for (genvar i = 0; i < Bits; i++) begin : gen_reach
    assign reach[i+1] = halves[Places][i+1] ? divisor[Places][Mantissa-1-:Bits] >> (Bits - 1 - i) : reach[i];
  end

  always_ff @(posedge clk_i) begin
    zero_2_q     <= zero[Places];
    full_2_q     <= full[Places];
    halves_2_q   <= halves[Places];
    distance_2_q <= halves[Places][0] ? rest[Places] : divisor[Places] - rest[Places];
    reach_2_q    <= reach[Bits];
  end

  logic          zero_3_q, full_3_q, tie_3_q;
  logic [Bits:0] halves_3_q;

  always_ff @(posedge clk_i) begin
    zero_3_q   <= zero_2_q;
    full_3_q   <= full_2_q || halves_2_q[Places-1];
    halves_3_q <= halves_2_q[Bits:0];
    tie_3_q    <= distance_2_q <= Mantissa'(reach_2_q);
  end

  // A tie goes to the even number; everything else to the nearer one. A carry beyond Bits is full as well.
  logic               up;
  logic [Bits:0]      rounded;
  logic [Bits-1:0]    steps_q;
  logic [Latency-1:0] valid_q;

  assign up      = tie_3_q ? halves_3_q[1] : halves_3_q[0];
  assign rounded = {1'b0, halves_3_q[Bits:1]} + (Bits + 1)'(up);

  always_ff @(posedge clk_i) begin
    valid_q <= rst_i ? '0 : {valid_q[Latency-2:0], valid_i};
    if (rst_i || zero_3_q || !valid_q[Latency-2]) steps_q <= '0;
    else steps_q <= full_3_q || rounded[Bits] ? '1 : rounded[Bits-1:0];
  end

  assign valid_o = valid_q[Latency-1];
  assign steps_o = steps_q;

endmodule

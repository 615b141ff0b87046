// The factor of perfect scaling, 255 / largest in float64, for whole numbers of 20 bits.
//
// start_i begins with the largest number, at least 1; ready_o is 1 when the factor is there, 29 cycles later. places_o
// moves the largest number's highest bit to bit 19; factor_o is for numbers moved by as many places: 255 * 2**20 / largest
// in steps of 2**-45, rounded to 53 significant bits as float64 does.
module perfect_factor (
  input  logic        clk_i,
  input  logic        rst_i,
  input  logic        start_i,
  input  logic [19:0] largest_i,
  output logic        ready_o,
  output logic [4:0]  places_o,
  output logic [53:0] factor_o
);

  // The quotient has 9 bits before the point and 47 behind it: two a cycle.
  localparam logic [4:0] Steps = 5'd28;
  localparam logic [19:0] Begin = 20'd255 << 11;  // 255 * 2**20 without its last 9 bits, which are 0

  logic [4:0]  highest, places_q, left_q;
  logic [19:0] divisor_q, rest_q, middle, rest;
  logic [55:0] quotient_q;
  logic        upper, lower;

  highest_bit #(
    .Width(20),
    .PlaceWidth(5)
  ) u_highest (
    .word_i(largest_i),
    .place_o(highest)
  );

  assign upper  = {rest_q, 1'b0} >= {1'b0, divisor_q};
  assign middle = upper ? {rest_q[18:0], 1'b0} - divisor_q : {rest_q[18:0], 1'b0};
  assign lower  = {middle, 1'b0} >= {1'b0, divisor_q};
  assign rest   = lower ? {middle[18:0], 1'b0} - divisor_q : {middle[18:0], 1'b0};

  always_ff @(posedge clk_i) begin
    if (rst_i) left_q <= '0;
    else if (start_i) left_q <= Steps;
    else if (left_q != '0) left_q <= left_q - 1'b1;
  end

  always_ff @(posedge clk_i) begin
    if (start_i) begin
      places_q  <= 5'd19 - highest;
      divisor_q <= largest_i << (5'd19 - highest);
      rest_q    <= Begin;
    end else if (left_q != '0) begin
      rest_q     <= rest;
      quotient_q <= {quotient_q[53:0], upper, lower};
    end
  end

  // To 53 bits: the highest bit is 55 or 54, so 3 or 2 bits go. Half of them is rounded to even.
  logic        long, half, more, up;
  logic [52:0] kept;
  logic [53:0] rounded;

  assign long    = quotient_q[55];
  assign kept    = long ? quotient_q[55:3] : quotient_q[54:2];
  assign half    = long ? quotient_q[2] : quotient_q[1];
  assign more    = (long && quotient_q[1]) || quotient_q[0] || rest_q != '0;
  assign up      = half && (more || kept[0]);
  assign rounded = {1'b0, kept} + {53'd0, up};

  assign ready_o  = left_q == '0;
  assign places_o = places_q;
  assign factor_o = long ? {rounded[52:0], 1'b0} : rounded;

endmodule

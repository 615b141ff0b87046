// One lane of the photonic multiplier: product, gain, noise, and the converter's limits.
module photonic_sample #(
  parameter int Lane = 0
) (
  input  logic        clk_i,
  input  logic        rst_i,
  input  logic [8:0]  gain_i,
  input  logic        noise_i,
  input  logic [31:0] seed_i,
  // Bits [14:7] of a sample are the light.
  // verilator lint_off UNUSEDSIGNAL
  input  logic [15:0] activation_i,
  input  logic [15:0] weight_i,
  // verilator lint_on UNUSEDSIGNAL
  output logic [15:0] sample_o
);

  // A linear-feedback generator of 32 bits (xorshift 13, 17, 5), begun differently in every lane. All 0 would stay
  // 0. It stands at its beginning while there is no noise.
  localparam logic [31:0] Salt = 32'h9E37_79B9 * $unsigned(Lane + 1);

  logic [31:0] start, state_q, after_left, after_right;

  assign start       = seed_i ^ Salt;
  assign after_left  = state_q ^ {state_q[18:0], 13'd0};
  assign after_right = after_left ^ {17'd0, after_left[31:17]};

  always_ff @(posedge clk_i) begin
    if (rst_i || !noise_i) state_q <= start == '0 ? 32'd1 : start;
    else state_q <= after_right ^ {after_right[26:0], 5'd0};
  end

  // Detector and converter drop the lower bits.
  // verilator lint_off UNUSEDSIGNAL
  logic [15:0] product;
  logic [16:0] amplified;
  // verilator lint_on UNUSEDSIGNAL
  logic [9:0]  noise, noisy;
  logic [7:0]  light, light_q;

  assign product   = {8'd0, activation_i[14:7]} * {8'd0, weight_i[14:7]};
  assign amplified = {9'd0, product[15:8]} * {8'd0, gain_i};
  assign noise     = noise_i ? {8'd0, state_q[1:0]} + {8'd0, state_q[17:16]} - 10'd3 : 10'd0;
  assign noisy     = {1'b0, amplified[16:8]} + noise;
  assign light     = noisy[9] ? 8'd0 : (noisy[8] ? 8'd255 : noisy[7:0]);

  always_ff @(posedge clk_i) begin
    if (rst_i) light_q <= '0;
    else light_q <= light;
  end

  assign sample_o = {1'b0, light_q, 7'd0};

endmodule

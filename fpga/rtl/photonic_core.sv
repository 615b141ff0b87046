// A photonic multiplier as it looks from the converters: for simulation and tests, in place of the optics.
//
// Bits [14:7] of a sample are the light. A sample of the activation stream times the sample of the weight stream at
// the same place is (a * b) >> 8, as the published multiplier; then gain_i / 256, and with noise_i a seeded noise of
// -3 .. 3 (two uniform numbers of 2 bits each, deviation 1.58). It comes back 1 + delay_i cycles and shift_i samples later.
module photonic_core #(
  parameter int Lanes = 16,
  parameter int MaxDelay = 15
) (
  input  logic                clk_i,
  input  logic                rst_i,
  input  logic [3:0]          delay_i,
  input  logic [3:0]          shift_i,
  input  logic [8:0]          gain_i,
  input  logic                noise_i,
  input  logic [31:0]         seed_i,
  input  logic [Lanes*16-1:0] activation_i,
  input  logic [Lanes*16-1:0] weight_i,
  output logic [Lanes*16-1:0] samples_o
);

  localparam int Bits = Lanes * 16;

  logic [Bits-1:0] light;

  for (genvar i = 0; i < Lanes; i++) begin : gen_lanes
    photonic_sample #(
      .Lane(i)
    ) u_sample (
      .clk_i,
      .rst_i,
      .gain_i,
      .noise_i,
      .seed_i,
      .activation_i(activation_i[i*16+:16]),
      .weight_i(weight_i[i*16+:16]),
      .sample_o(light[i*16+:16])
    );
  end

  // Element d is the light of d cycles ago. One more than the delay: a shift needs the cycle before, too.
  logic [Bits-1:0] history[MaxDelay + 2];

  assign history[0] = light;
  for (genvar d = 0; d <= MaxDelay; d++) begin : gen_delay
    logic [Bits-1:0] samples_q;

    always_ff @(posedge clk_i) begin
      if (rst_i) samples_q <= '0;
      else samples_q <= history[d];
    end
    assign history[d+1] = samples_q;
  end

  logic [Bits-1:0]   latest, earlier;
  logic [2*Bits-1:0] window;
  logic [4:0]        first;

  assign latest    = history[{1'b0, delay_i}];
  assign earlier   = history[{1'b0, delay_i}+5'd1];
  assign window    = {latest, earlier};
  assign first     = 5'd16 - {1'b0, shift_i};
  assign samples_o = window[first*16+:Bits];

endmodule

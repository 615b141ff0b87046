// A photonic multiplier as it looks from the converters: for simulation and tests, in place of the optics.
//
// Bits [14:7] of a sample are the light. A sample of the activation stream times the sample of the weight stream at
// the same place is (a * b) >> 8, as the published multiplier; then gain_i / 256, and with noise_i a seeded noise of
// -3 .. 3 (two uniform numbers of 2 bits each, deviation 1.58). It comes back 1 + delay_i cycles and shift_i samples later.
// Between the modulators light takes apart_delay_i cycles and apart_shift_i samples: weights have to be sent that much
// later than their activations.
module photonic_core #(
  parameter int Lanes = 16,
  parameter int MaxDelay = 15
) (
  input  logic                clk_i,
  input  logic                rst_i,
  input  logic [3:0]          delay_i,
  input  logic [3:0]          shift_i,
  input  logic [3:0]          apart_delay_i,
  input  logic [3:0]          apart_shift_i,
  input  logic [8:0]          gain_i,
  input  logic                noise_i,
  input  logic [31:0]         seed_i,
  input  logic [Lanes*16-1:0] activation_i,
  input  logic [Lanes*16-1:0] weight_i,
  output logic [Lanes*16-1:0] samples_o
);

  localparam int Bits = Lanes * 16;

  logic [Bits-1:0] activation, light;

  sample_delay #(
    .Lanes(Lanes),
    .MaxDelay(MaxDelay)
  ) u_apart (
    .clk_i,
    .rst_i,
    .delay_i(apart_delay_i),
    .shift_i(apart_shift_i),
    .samples_i(activation_i),
    .samples_o(activation)
  );

  for (genvar i = 0; i < Lanes; i++) begin : gen_lanes
    photonic_sample #(
      .Lane(i)
    ) u_sample (
      .clk_i,
      .rst_i,
      .gain_i,
      .noise_i,
      .seed_i,
      .activation_i(activation[i*16+:16]),
      .weight_i(weight_i[i*16+:16]),
      .sample_o(light[i*16+:16])
    );
  end

  sample_delay #(
    .Lanes(Lanes),
    .MaxDelay(MaxDelay)
  ) u_delay (
    .clk_i,
    .rst_i,
    .delay_i,
    .shift_i,
    .samples_i(light),
    .samples_o
  );

endmodule

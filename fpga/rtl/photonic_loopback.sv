// A network on a simulated photonic multiplier: what a board and the optics do together.
//
// optics_* are the settings of photonic_core.
module photonic_loopback (
  input  logic         clk_i,
  input  logic         rst_i,
  input  logic         weight_write_i,
  input  logic [14:0]  weight_address_i,
  input  logic [143:0] weight_data_i,
  input  logic         image_write_i,
  input  logic [5:0]   image_row_i,
  input  logic [127:0] image_data_i,
  input  logic         layer_write_i,
  input  logic [1:0]   layer_address_i,
  input  logic [55:0]  layer_data_i,
  input  logic [2:0]   layers_i,
  input  logic [7:0]   preamble_i,
  input  logic [31:0]  limit_i,
  input  logic         sparsity_i,
  input  logic         run_i,
  input  logic [3:0]   optics_delay_i,
  input  logic [3:0]   optics_shift_i,
  input  logic [8:0]   optics_gain_i,
  input  logic         optics_noise_i,
  input  logic [31:0]  optics_seed_i,
  output logic         result_valid_o,
  output logic [15:0]  result_o,
  output logic [1:0]   layer_o,
  output logic [15:0]  class_o,
  output logic         finished_o,
  output logic [31:0]  cycles_o,
  output logic         fault_o,
  output logic         start_o,
  output logic         heading_o,
  output logic         sending_o,
  output logic         light_o,
  output logic         open_o,
  output logic         partial_valid_o
);

  logic [255:0] dac_activation, dac_weight, adc;

  photonic_inference u_inference (
    .clk_i,
    .rst_i,
    .weight_write_i,
    .weight_address_i,
    .weight_data_i,
    .image_write_i,
    .image_row_i,
    .image_data_i,
    .layer_write_i,
    .layer_address_i,
    .layer_data_i,
    .layers_i,
    .preamble_i,
    .limit_i,
    .sparsity_i,
    .run_i,
    .dac_activation_o(dac_activation),
    .dac_weight_o(dac_weight),
    .adc_i(adc),
    .result_valid_o,
    .result_o,
    .layer_o,
    .class_o,
    .finished_o,
    .cycles_o,
    .fault_o,
    .start_o,
    .heading_o,
    .sending_o,
    .open_o,
    .partial_valid_o
  );

  photonic_core u_core (
    .clk_i,
    .rst_i,
    .delay_i(optics_delay_i),
    .shift_i(optics_shift_i),
    .apart_delay_i(4'd0),
    .apart_shift_i(4'd0),
    .gain_i(optics_gain_i),
    .noise_i(optics_noise_i),
    .seed_i(optics_seed_i),
    .activation_i(dac_activation),
    .weight_i(dac_weight),
    .samples_o(adc)
  );

  assign light_o = |adc;

endmodule

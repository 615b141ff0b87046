// A network of dense layers on one photonic multiplier, layer by layer, from weights in memory.
//
// Memories are written before run_i: the weights (a word of Lanes times {sign, magnitude} for every beat, in the order in
// which they are sent), the image (rows of Lanes magnitudes), and the table of layers: {results, products, beats},
// where beats are the words of one output and products those of the layer. Layers take turns
// on two activation memories; an image stands in the first one, and has to be written again for every run.
// fault_o: a count went over its target, or limit_i cycles were not enough (light that
// never came back; 0 is no limit). After a run that did not finish a reset is due.
// What is counted is generated from library/photonic_mac_control.ca; cycle by cycle: docs/reference/photonic-mac.md.
module photonic_inference #(
  parameter bit Published = 1'b0,
  parameter int WeightWords = 16896,
  parameter int WeightBits = 15,
  parameter int Rows = 64,
  parameter int RowBits = 6,
  parameter int Layers = 4,
  parameter int LayerBits = 2
) (
  input  logic                  clk_i,
  input  logic                  rst_i,
  input  logic                  weight_write_i,
  input  logic [WeightBits-1:0] weight_address_i,
  input  logic [143:0]          weight_data_i,
  input  logic                  image_write_i,
  input  logic [RowBits-1:0]    image_row_i,
  input  logic [127:0]          image_data_i,
  input  logic                  layer_write_i,
  input  logic [LayerBits-1:0]  layer_address_i,
  input  logic [55:0]           layer_data_i,
  input  logic [LayerBits:0]    layers_i,
  input  logic [7:0]            preamble_i,
  input  logic [31:0]           limit_i,
  input  logic                  sparsity_i,
  input  logic                  run_i,
  output logic [255:0]          dac_activation_o,
  output logic [255:0]          dac_weight_o,
  input  logic [255:0]          adc_i,
  output logic                  result_valid_o,
  output logic [15:0]           result_o,
  output logic [LayerBits-1:0]  layer_o,
  output logic [15:0]           class_o,
  output logic                  finished_o,
  output logic [31:0]           cycles_o,
  output logic                  fault_o,
  output logic                  start_o,
  output logic                  heading_o,
  output logic                  sending_o,
  output logic                  open_o,
  output logic                  partial_valid_o
);

  localparam int Lanes = 16;

  // ---- Control: counts, targets and actions
  logic [12:0]  partial;
  logic [183:0] targets;
  logic [10:0]  overshoot, saturated;
  logic         layer_done, next, late;
  logic [55:0]  layer;
  logic [15:0]  result_index;
  // Of most counts the fire is enough.
  // verilator lint_off UNUSEDSIGNAL
  logic [199:0] counts;
  // verilator lint_on UNUSEDSIGNAL
  logic [RowBits-1:0] row;

  assign start_o      = run_i || (next && !finished_o);
  assign row          = counts[32+:RowBits];
  assign result_index = counts[87:72];
  assign layer_o      = counts[120+:LayerBits];
  assign cycles_o     = counts[199:168];
  assign fault_o      = |{overshoot, saturated, late};
  assign targets = {
    limit_i, 16'd1, {(15 - LayerBits) {1'b0}}, layers_i, 16'd1, layer[15:0],
    layer, 8'd0, preamble_i, 16'd1
  };

  photonic_mac_control u_control (
    .clk_i,
    .rst_i,
    .start_i(start_o),
    .partial_valid_i(partial_valid_o),
    .partial_data_i(partial),
    .run_i,
    .target_shadow_i(targets),
    .commit_i(start_o),
    .clear_status_i(run_i),
    // verilator lint_off PINCONNECTEMPTY
    .partial_ready_o(),
    .sequencer_row_done_o(),
    .latency_running_o(),
    .fire_o(),
    // verilator lint_on PINCONNECTEMPTY
    .sequencer_heading_o(heading_o),
    .sequencer_sending_o(sending_o),
    .sequencer_layer_done_o(layer_done),
    .accumulator_result_valid_o(result_valid_o),
    .accumulator_result_data_o(result_o),
    .layers_next_o(next),
    .layers_finished_o(finished_o),
    .latency_late_o(late),
    .count_o(counts),
    .overshoot_o(overshoot),
    .saturated_o(saturated)
  );

  // The layer of which the targets are committed: its table is read in the cycle of start_o.
  logic [55:0] layers_q[Layers];

  always_ff @(posedge clk_i) begin
    if (layer_write_i) layers_q[layer_address_i] <= layer_data_i;
  end

  assign layer = layers_q[layer_o];

  // ---- Weights, in the order in which they are sent
  logic [WeightBits-1:0] weight_address_q;
  logic [Lanes*9-1:0]    weights;

  always_ff @(posedge clk_i) begin
    if (rst_i || run_i) weight_address_q <= '0;
    else if (sending_o) weight_address_q <= weight_address_q + 1'b1;
  end

  word_memory #(
    .Width(Lanes * 9),
    .Depth(WeightWords),
    .AddressWidth(WeightBits)
  ) u_weights (
    .clk_i,
    .write_i(weight_write_i),
    .write_address_i(weight_address_i),
    .word_i(weight_data_i),
    .read_address_i(weight_address_q),
    .word_o(weights)
  );

  // ---- Activations: layer 0, 2, ... reads the first memory and writes the second, layer 1, 3, ... the other way
  logic [Lanes*16-1:0] image, first_row, second_row, results;

  for (genvar i = 0; i < Lanes; i++) begin : gen_image
    assign image[i*16+:16] = {8'd0, image_data_i[i*8+:8]};
  end

  activation_memory #(
    .Lanes(Lanes),
    .LaneBits(4),
    .Rows(Rows),
    .RowBits(RowBits)
  ) u_first (
    .clk_i,
    .row_write_i(image_write_i),
    .row_i(image_row_i),
    .row_data_i(image),
    .result_write_i(result_valid_o && layer_o[0]),
    .result_index_i(result_index[RowBits+3:0]),
    .result_i(result_o),
    .read_row_i(row),
    .row_o(first_row)
  );

  activation_memory #(
    .Lanes(Lanes),
    .LaneBits(4),
    .Rows(Rows),
    .RowBits(RowBits)
  ) u_second (
    .clk_i,
    .row_write_i(1'b0),
    .row_i({RowBits{1'b0}}),
    .row_data_i({Lanes{16'd0}}),
    .result_write_i(result_valid_o && !layer_o[0]),
    .result_index_i(result_index[RowBits+3:0]),
    .result_i(result_o),
    .read_row_i(row),
    .row_o(second_row)
  );

  assign results = layer_o[0] ? second_row : first_row;

  // ---- The largest result: it says how the next layer is scaled, and of the last layer it is the class
  logic [15:0] largest;
  logic [3:0]  highest, highest_q;

  running_maximum #(
    .Width(16),
    .IndexWidth(16)
  ) u_largest (
    .clk_i,
    .rst_i,
    .clear_i(start_o),
    .valid_i(result_valid_o),
    .sample_i(result_o),
    .index_i(result_index),
    .largest_o(largest),
    .index_o(class_o)
  );

  highest_bit #(
    .Width(16),
    .PlaceWidth(4)
  ) u_highest (
    .word_i(largest[15] ? 16'd0 : largest),
    .place_o(highest)
  );

  // An image is sent as it is.
  always_ff @(posedge clk_i) begin
    if (rst_i || run_i) highest_q <= 4'd7;
    else if (layer_done) highest_q <= highest;
  end

  // ---- To the converters: idle, preamble or a beat, two cycles after heading_o and sending_o
  logic               heading_q;
  logic [1:0]         sending_q;
  logic [Lanes*8-1:0] activations, activation_q, weight_q;
  logic [Lanes-1:0]   sign_q, keep_q;

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      heading_q <= 1'b0;
      sending_q <= '0;
    end else begin
      heading_q <= heading_o;
      sending_q <= {sending_q[0], sending_o};
    end
  end

  for (genvar i = 0; i < Lanes; i++) begin : gen_lanes
    logic [7:0] weight, activation;

    normalised_activation u_activation (
      .result_i(results[i*16+:16]),
      .highest_i(highest_q),
      .activation_o(activations[i*8+:8])
    );

    // The preamble is light in the first half of a cycle and none in the second.
    assign weight     = heading_q ? (i < Lanes / 2 ? 8'hFF : 8'h00) : weights[i*9+:8];
    assign activation = heading_q ? 8'hFF : activations[i*8+:8];

    always_ff @(posedge clk_i) begin
      if (rst_i || !(heading_q || sending_q[0])) begin
        activation_q[i*8+:8] <= '0;
        weight_q[i*8+:8]     <= '0;
      end else begin
        activation_q[i*8+:8] <= activation;
        weight_q[i*8+:8]     <= weight;
      end
    end

    always_ff @(posedge clk_i) begin
      sign_q[i] <= weights[i*9+8];
      keep_q[i] <= !sparsity_i || (weights[i*9+:8] != '0 && activations[i*8+:8] != '0);
    end

    assign dac_activation_o[i*16+:16] = {1'b0, activation_q[i*8+:8], 7'd0};
    assign dac_weight_o[i*16+:16]     = {1'b0, weight_q[i*8+:8], 7'd0};
  end

  // ---- What comes back
  photonic_mac #(
    .Published(Published)
  ) u_mac (
    .clk_i,
    .rst_i,
    .restart_i(start_o),
    .preamble_i,
    .sent_i(sending_q[1]),
    .beat_i(1'b1),
    .signs_i(sign_q),
    .keep_i(keep_q),
    .samples_i(adc_i),
    .open_o,
    .partial_valid_o,
    .partial_o(partial)
  );

endmodule

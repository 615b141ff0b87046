// A network of dense layers on one photonic multiplier, with weights that stream in while the light is on.
//
// run_i starts a request whose image stands in a buffer outside: row_o asks for sixteen activations, which come as
// image_i two cycles later. Each word of weights goes with one row; in a cycle without a word nothing is sent. Later
// layers read the activations that the layer before has written here. layer_i is the entry of layer layer_o:
// {last, rectified, step, words, beats, outputs}. The first word of an output also carries its bias and its scale.
//
// A sum becomes (sum + bias) * scale, in float32. That is a score after the last layer; before, it is divided by
// the step of the next layer and rounded to an activation. With published_i the sum itself is kept, and the next
// layer's activations are shifted so that the largest one has bit 7 set, or with perfect_i scaled so that it is 255.
// fault_o: a count went over its target, or limit_i cycles were not enough (0 is no limit). A reset is due then.
module streamed_inference (
  input  logic         clk_i,
  input  logic         rst_i,
  input  logic         run_i,
  input  logic         published_i,
  input  logic         wrap_i,
  input  logic         perfect_i,
  input  logic [3:0]   layers_i,
  output logic [3:0]   layer_o,
  input  logic [89:0]  layer_i,
  input  logic [7:0]   preamble_i,
  input  logic [31:0]  limit_i,
  input  logic         sparsity_i,
  input  logic [7:0]   apart_i,
  input  logic [9:0]   loss_factor_i,
  input  logic         word_valid_i,
  output logic         word_ready_o,
  // The upper bits of a word are spare.
  // verilator lint_off UNUSEDSIGNAL
  input  logic [255:0] word_i,
  // verilator lint_on UNUSEDSIGNAL
  output logic [5:0]   row_o,
  input  logic [127:0] image_i,
  output logic [255:0] dac_activation_o,
  output logic [255:0] dac_weight_o,
  input  logic [255:0] adc_i,
  output logic         score_valid_o,
  output logic [31:0]  score_o,
  output logic         finished_o,
  output logic [31:0]  cycles_o,
  output logic         fault_o,
  output logic         start_o,
  output logic         heading_o,
  output logic         sending_o,
  output logic         open_o,
  output logic         partial_valid_o,
  output logic         result_valid_o,
  output logic [199:0] counts_o,
  output logic [183:0] targets_o,
  output logic [10:0]  fires_o
);

  localparam int Lanes = 16;
  localparam int Width = 20;
  localparam int PlaceWidth = 5;
  localparam int Reading = 5;  // cycles from a row's address to its activations

  // ---- The entry of the layer at work
  logic [15:0] outputs, beats;
  logic [23:0] words;
  logic [31:0] step;
  logic        rectified, last;

  assign {last, rectified, step, words, beats, outputs} = layer_i;

  // ---- Control: counts, targets and actions
  logic             factor_ready;
  logic [12:0]      partial;
  logic [10:0]      overshoot, saturated;
  logic             layer_done, next, late, word_valid, take, written;
  logic [Width-1:0] result;
  logic [9:0]       result_index;

  assign start_o      = run_i || (next && !finished_o);
  assign take         = sending_o && word_valid;
  assign word_ready_o = sending_o && factor_ready;
  assign row_o        = counts_o[32+:6];
  assign result_index = counts_o[72+:10];
  assign layer_o      = counts_o[120+:4];
  assign cycles_o     = counts_o[199:168];
  assign fault_o      = |{overshoot, saturated, late};
  assign targets_o = {
    limit_i, 16'd1, {12'd0, layers_i}, 16'd1, beats, outputs, words, beats, {8'd0, preamble_i}, 16'd1
  };

  smartnic_control u_control (
    .clk_i,
    .rst_i,
    .start_i(start_o),
    .word_i(word_valid),
    .result_i(written),
    .partial_valid_i(partial_valid_o),
    .partial_data_i(partial),
    .run_i,
    .accumulator_result_ready_i(1'b1),
    .target_shadow_i(targets_o),
    .commit_i(start_o),
    .clear_status_i(run_i),
    // verilator lint_off PINCONNECTEMPTY
    .partial_ready_o(),
    .sequencer_row_done_o(),
    .latency_running_o(),
    // verilator lint_on PINCONNECTEMPTY
    .fire_o(fires_o),
    .sequencer_heading_o(heading_o),
    .sequencer_sending_o(sending_o),
    .sequencer_layer_done_o(layer_done),
    .accumulator_result_valid_o(result_valid_o),
    .accumulator_result_data_o(result),
    .layers_next_o(next),
    .layers_finished_o(finished_o),
    .latency_late_o(late),
    .count_o(counts_o),
    .overshoot_o(overshoot),
    .saturated_o(saturated)
  );

  // ---- Activations: layer 0 reads the image, layer 1, 3, ... the first memory and layer 2, 4, ... the second
  logic                   kept, activation_write;
  logic [Width-1:0]       activation;
  logic [Lanes*Width-1:0] first_row, second_row, row;

  activation_memory #(
    .Lanes(Lanes),
    .Width(Width)
  ) u_first (
    .clk_i,
    .row_write_i(1'b0),
    .row_i('0),
    .row_data_i('0),
    .result_write_i(activation_write && !layer_o[0]),
    .result_index_i(result_index),
    .result_i(activation),
    .read_row_i(row_o),
    .row_o(first_row)
  );

  activation_memory #(
    .Lanes(Lanes),
    .Width(Width)
  ) u_second (
    .clk_i,
    .row_write_i(1'b0),
    .row_i('0),
    .row_data_i('0),
    .result_write_i(activation_write && layer_o[0]),
    .result_index_i(result_index),
    .result_i(activation),
    .read_row_i(row_o),
    .row_o(second_row)
  );

  assign row = layer_o[0] ? first_row : second_row;

  // ---- The largest sum of a layer says how the next one is scaled
  logic [Width-1:0]      largest;
  logic [PlaceWidth-1:0] highest, highest_q;

  running_maximum #(
    .Width(Width),
    .IndexWidth(1)
  ) u_largest (
    .clk_i,
    .rst_i,
    .clear_i(start_o),
    .valid_i(activation_write),
    .sample_i(activation),
    .index_i(1'b0),
    .largest_o(largest),
    // verilator lint_off PINCONNECTEMPTY
    .index_o()
    // verilator lint_on PINCONNECTEMPTY
  );

  highest_bit #(
    .Width(Width),
    .PlaceWidth(PlaceWidth)
  ) u_highest (
    .word_i(largest[Width-1] ? '0 : largest),
    .place_o(highest)
  );

  logic [4:0]  places;
  logic [53:0] factor;

  perfect_factor u_factor (
    .clk_i,
    .rst_i,
    .start_i(layer_done && perfect_i),
    .largest_i(largest[Width-1] || largest == '0 ? 20'd1 : largest),
    .ready_o(factor_ready),
    .places_o(places),
    .factor_o(factor)
  );

  // A word waits for the factor of its activations.
  assign word_valid = word_valid_i && factor_ready;

  // Activations that were rounded already stay as they are.
  always_ff @(posedge clk_i) begin
    if (rst_i || run_i) highest_q <= 5'd7;
    else if (layer_done) highest_q <= published_i ? highest : 5'd7;
  end

  // ---- To the converters: idle, preamble, a gap or a beat, six cycles after heading_o, sending_o and take
  logic [Reading-1:0] heading_q;
  logic [Reading:0]   sending_q, take_q;
  logic [Lanes*9-1:0] word;
  logic [Lanes*8-1:0] image, activation_q, weight_q;
  logic [Lanes-1:0]   sign_q, keep_q;
  logic [255:0]       sent_activations, sent_weights, samples;

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      heading_q <= '0;
      sending_q <= '0;
      take_q    <= '0;
    end else begin
      heading_q <= {heading_q[Reading-2:0], heading_o};
      sending_q <= {sending_q[Reading-1:0], sending_o};
      take_q    <= {take_q[Reading-1:0], take};
    end
  end

  delay_line #(
    .Width(Lanes * 9),
    .Cycles(Reading)
  ) u_word (
    .clk_i,
    .word_i(word_i[143:0]),
    .word_o(word)
  );

  delay_line #(
    .Width(Lanes * 8),
    .Cycles(Reading - 2)
  ) u_image (
    .clk_i,
    .word_i(image_i),
    .word_o(image)
  );

  for (genvar i = 0; i < Lanes; i++) begin : gen_lanes
    logic [7:0] scaled, weight, sent;

    scaled_activation u_activation (
      .clk_i,
      .perfect_i,
      .result_i(row[i*Width+:Width]),
      .highest_i(highest_q),
      .places_i(places),
      .factor_i(factor),
      .activation_o(scaled)
    );

    // The preamble is light in the first half of a cycle and none in the second.
    assign sent   = layer_o == '0 ? image[i*8+:8] : scaled;
    assign weight = heading_q[Reading-1] ? (i < Lanes / 2 ? 8'hFF : 8'h00) : word[i*8+:8];

    always_ff @(posedge clk_i) begin
      if (rst_i || !(heading_q[Reading-1] || take_q[Reading-1])) begin
        activation_q[i*8+:8] <= '0;
        weight_q[i*8+:8]     <= '0;
      end else begin
        activation_q[i*8+:8] <= heading_q[Reading-1] ? 8'hFF : sent;
        weight_q[i*8+:8]     <= weight;
      end
    end

    always_ff @(posedge clk_i) begin
      sign_q[i] <= word[128+i];
      keep_q[i] <= !sparsity_i || (word[i*8+:8] != '0 && sent != '0);
    end

    assign sent_activations[i*16+:16] = {1'b0, activation_q[i*8+:8], 7'd0};
    assign sent_weights[i*16+:16]     = {1'b0, weight_q[i*8+:8], 7'd0};
  end

  // Weights wait for the light of their activations, which has been through the first modulator by then.
  modulator_delay u_apart (
    .clk_i,
    .rst_i,
    .delay_i(apart_i[7:4]),
    .shift_i(apart_i[3:0]),
    .activation_i(sent_activations),
    .weight_i(sent_weights),
    .activation_o(dac_activation_o),
    .weight_o(dac_weight_o)
  );

  // ---- What comes back
  loss_compensator u_loss (
    .clk_i,
    .rst_i,
    .factor_i(loss_factor_i),
    .samples_i(adc_i),
    .samples_o(samples)
  );

  photonic_mac u_mac (
    .clk_i,
    .rst_i,
    .restart_i(start_o),
    .preamble_i,
    .sent_i(sending_q[Reading]),
    .beat_i(take_q[Reading]),
    .signs_i(sign_q),
    .keep_i(keep_q),
    .samples_i(samples),
    .open_o,
    .partial_valid_o,
    .partial_o(partial)
  );

  // ---- Bias and scale of an output wait until its sum is there
  logic [55:0] output_numbers;

  beat_queue #(
    .Width(56)
  ) u_numbers (
    .clk_i,
    .rst_i,
    .clear_i(start_o),
    .push_i(take && counts_o[47:32] == '0),
    .word_i(word_i[199:144]),
    .pop_i(result_valid_o),
    // verilator lint_off PINCONNECTEMPTY
    .valid_o(),
    // verilator lint_on PINCONNECTEMPTY
    .word_o(output_numbers)
  );

  // ---- From a sum to a score or an activation
  logic        biased_valid_q, product_valid, steps_valid;
  logic [23:0] sum, biased_q;
  logic [31:0] scale_q, product;
  logic [7:0]  steps;

  assign sum = wrap_i ? {{8{result[15]}}, result[15:0]} : {{4{result[19]}}, result};

  always_ff @(posedge clk_i) begin
    if (rst_i || start_o) biased_valid_q <= 1'b0;
    else biased_valid_q <= result_valid_o;
  end

  always_ff @(posedge clk_i) begin
    biased_q <= sum + output_numbers[23:0];
    scale_q  <= output_numbers[55:24];
  end

  // The sum of a published model is kept as it is; it has no bias.
  assign kept = published_i && !last;

  float_product u_product (
    .clk_i,
    .rst_i,
    .valid_i(biased_valid_q && !kept),
    .whole_i(biased_q),
    .scale_i(scale_q),
    .valid_o(product_valid),
    .product_o(product)
  );

  float_steps u_steps (
    .clk_i,
    .rst_i,
    .valid_i(product_valid && !last),
    .real_i(product),
    .step_i(step),
    .valid_o(steps_valid),
    .steps_o(steps)
  );

  assign activation_write = (biased_valid_q && kept) || steps_valid;
  assign activation       = kept ? biased_q[Width-1:0] : {12'd0, steps};
  assign score_valid_o    = product_valid && last;
  assign score_o          = rectified && product[31] ? '0 : product;
  assign written          = activation_write || score_valid_o;

endmodule

// The photonic smartNIC: frames in, inference by light, frames out.
//
//     rx -> packet_request -> request_engine -> packet_answer -> tx
//                         \-> ARP, pings, refusals ->/
//
// A packet has one outcome, which packet_outcomes counts: counts_o has eleven counts of 32 bits, in the order of its
// text. Weights are read from an AXI4 memory with the reset bus_rst_i; rst_i alone may come while words are on their way. The
// converters' streams go to the modulators and come from the detector.
// working_o is 1 from the beginning of a request to its end. busy_o is 0 when nothing is in work or waits, and Quiet cycles
// have gone by since the last frame.
module smartnic (
  input  logic         clk_i,
  input  logic         rst_i,
  input  logic         bus_rst_i,
  input  logic [47:0]  mac_i,
  input  logic [31:0]  address_i,
  input  logic [15:0]  port_i,
  input  logic [15:0]  cycles_per_us_i,
  input  logic [7:0]   preamble_i,
  input  logic [31:0]  limit_i,
  input  logic         sparsity_i,
  input  logic [7:0]   apart_i,
  input  logic [9:0]   loss_factor_i,
  input  logic [39:0]  base_i,
  input  logic         hold_i,
  input  logic         abort_i,
  input  logic         table_write_i,
  input  logic [1:0]   table_select_i,
  input  logic [11:0]  table_address_i,
  input  logic [127:0] table_data_i,
  output logic [351:0] counts_o,
  output logic         working_o,
  output logic         busy_o,
  input  logic         rx_valid_i,
  output logic         rx_ready_o,
  input  logic [511:0] rx_data_i,
  input  logic [63:0]  rx_keep_i,
  input  logic         rx_last_i,
  input  logic         rx_bad_i,
  output logic         tx_valid_o,
  input  logic         tx_ready_i,
  output logic [511:0] tx_data_o,
  output logic [63:0]  tx_keep_o,
  output logic         tx_last_o,
  output logic         m_axi_arvalid_o,
  input  logic         m_axi_arready_i,
  output logic [39:0]  m_axi_araddr_o,
  output logic [7:0]   m_axi_arlen_o,
  output logic [2:0]   m_axi_arsize_o,
  output logic [1:0]   m_axi_arburst_o,
  input  logic         m_axi_rvalid_i,
  output logic         m_axi_rready_o,
  input  logic [255:0] m_axi_rdata_i,
  input  logic [1:0]   m_axi_rresp_i,
  input  logic         m_axi_rlast_i,
  output logic [255:0] dac_activation_o,
  output logic [255:0] dac_weight_o,
  input  logic [255:0] adc_i,
  output logic [3:0]   layer_o,
  output logic         start_o,
  output logic         heading_o,
  output logic         sending_o,
  output logic         open_o,
  output logic         partial_valid_o,
  output logic         result_valid_o,
  output logic [199:0] inference_counts_o,
  output logic [183:0] inference_targets_o,
  output logic [10:0]  inference_fires_o
);

  localparam logic [6:0] Quiet = 7'd64;

  // ---- The time in microseconds
  logic [15:0] cycle_q;
  logic [31:0] now_us_q;

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      cycle_q  <= '0;
      now_us_q <= '0;
    end else if (cycle_q + 16'd1 >= cycles_per_us_i) begin
      cycle_q  <= '0;
      now_us_q <= now_us_q + 1'b1;
    end else begin
      cycle_q <= cycle_q + 1'b1;
    end
  end

  // ---- From frames to requests
  logic [31:0]  model;
  logic         known, image_ready, image_write;
  logic [15:0]  inputs;
  logic [4:0]   image_word;
  logic [511:0] image_data;
  logic         request_valid, request_ready;
  logic [95:0]  request_client;
  logic [31:0]  request_model, request_deadline_us, request_arrival_us;
  logic [15:0]  request_inputs;
  logic [63:0]  request_number;
  logic [6:0]   outcome;
  logic         received, reply_valid, reply_ready, echo_next;
  logic [233:0] reply;
  logic [511:0] echo;

  packet_request u_request (
    .clk_i,
    .rst_i,
    .mac_i,
    .address_i,
    .port_i,
    .now_us_i(now_us_q),
    .rx_valid_i,
    .rx_ready_o,
    .rx_data_i,
    .rx_keep_i,
    .rx_last_i,
    .rx_bad_i,
    .model_o(model),
    .known_i(known),
    .inputs_i(inputs),
    .image_ready_i(image_ready),
    .image_write_o(image_write),
    .image_word_o(image_word),
    .image_data_o(image_data),
    .request_valid_o(request_valid),
    .request_ready_i(request_ready),
    .request_client_o(request_client),
    .request_model_o(request_model),
    .request_inputs_o(request_inputs),
    .request_number_o(request_number),
    .request_deadline_us_o(request_deadline_us),
    .request_arrival_us_o(request_arrival_us),
    .outcome_o(outcome),
    .received_o(received),
    .reply_valid_o(reply_valid),
    .reply_ready_i(reply_ready),
    .reply_o(reply),
    .echo_o(echo),
    .echo_next_i(echo_next)
  );

  // ---- From requests to answers
  logic         answer_valid, answer_ready, answered, late, failed, engine_busy;
  logic [7:0]   answer_code;
  logic [95:0]  answer_client;
  logic [31:0]  answer_model, answer_arrival_us, answer_class;
  logic [63:0]  answer_number, answer_cycles;
  logic [8:0]   answer_scores;
  logic [15:0]  answer_sum;
  logic [4:0]   score_word;
  logic [511:0] score_data;

  request_engine u_engine (
    .clk_i,
    .rst_i,
    .bus_rst_i,
    .now_us_i(now_us_q),
    .hold_i,
    .abort_i,
    .preamble_i,
    .limit_i,
    .sparsity_i,
    .apart_i,
    .loss_factor_i,
    .base_i,
    .table_write_i,
    .table_select_i,
    .table_address_i,
    .table_data_i,
    .model_i(model),
    .known_o(known),
    .inputs_o(inputs),
    .image_ready_o(image_ready),
    .image_write_i(image_write),
    .image_word_i(image_word),
    .image_data_i(image_data),
    .request_valid_i(request_valid),
    .request_ready_o(request_ready),
    .request_client_i(request_client),
    .request_model_i(request_model),
    .request_inputs_i(request_inputs),
    .request_number_i(request_number),
    .request_deadline_us_i(request_deadline_us),
    .request_arrival_us_i(request_arrival_us),
    .answer_valid_o(answer_valid),
    .answer_ready_i(answer_ready),
    .answer_code_o(answer_code),
    .answer_client_o(answer_client),
    .answer_model_o(answer_model),
    .answer_number_o(answer_number),
    .answer_arrival_us_o(answer_arrival_us),
    .answer_class_o(answer_class),
    .answer_cycles_o(answer_cycles),
    .answer_scores_o(answer_scores),
    .answer_sum_o(answer_sum),
    .score_word_i(score_word),
    .score_data_o(score_data),
    .answered_o(answered),
    .late_o(late),
    .failed_o(failed),
    .working_o,
    .busy_o(engine_busy),
    .m_axi_arvalid_o,
    .m_axi_arready_i,
    .m_axi_araddr_o,
    .m_axi_arlen_o,
    .m_axi_arsize_o,
    .m_axi_arburst_o,
    .m_axi_rvalid_i,
    .m_axi_rready_o,
    .m_axi_rdata_i,
    .m_axi_rresp_i,
    .m_axi_rlast_i,
    .dac_activation_o,
    .dac_weight_o,
    .adc_i,
    .layer_o,
    .start_o,
    .heading_o,
    .sending_o,
    .open_o,
    .partial_valid_o,
    .result_valid_o,
    .counts_o(inference_counts_o),
    .targets_o(inference_targets_o),
    .fires_o(inference_fires_o)
  );

  // ---- From answers to frames
  packet_answer u_answer (
    .clk_i,
    .rst_i,
    .mac_i,
    .address_i,
    .port_i,
    .now_us_i(now_us_q),
    .reply_valid_i(reply_valid),
    .reply_ready_o(reply_ready),
    .reply_i(reply),
    .echo_i(echo),
    .echo_next_o(echo_next),
    .answer_valid_i(answer_valid),
    .answer_ready_o(answer_ready),
    .answer_code_i(answer_code),
    .answer_client_i(answer_client),
    .answer_model_i(answer_model),
    .answer_number_i(answer_number),
    .answer_arrival_us_i(answer_arrival_us),
    .answer_class_i(answer_class),
    .answer_cycles_i(answer_cycles),
    .answer_scores_i(answer_scores),
    .answer_sum_i(answer_sum),
    .score_word_o(score_word),
    .score_data_i(score_data),
    .tx_valid_o,
    .tx_ready_i,
    .tx_data_o,
    .tx_keep_o,
    .tx_last_o
  );

  // ---- Outcomes
  packet_outcomes u_outcomes (
    .clk_i,
    .rst_i,
    .received_packet_i(received),
    .ignored_packet_i(outcome[0]),
    .corrupt_packet_i(outcome[1]),
    .arp_packet_i(outcome[2]),
    .ping_packet_i(outcome[3]),
    .malformed_packet_i(outcome[4]),
    .unknown_model_packet_i(outcome[5]),
    .refused_packet_i(outcome[6]),
    .answered_packet_i(answered),
    .late_packet_i(late),
    .failed_packet_i(failed),
    .target_shadow_i('0),
    .commit_i(1'b0),
    .clear_status_i(1'b0),
    .count_o(counts_o),
    // verilator lint_off PINCONNECTEMPTY
    .fire_o(),
    .overshoot_o(),
    .saturated_o()
    // verilator lint_on PINCONNECTEMPTY
  );

  // ---- Busy
  logic [6:0] quiet_q;

  always_ff @(posedge clk_i) begin
    if (rst_i) quiet_q <= Quiet;
    else if (engine_busy || rx_valid_i || tx_valid_o || reply_valid) quiet_q <= '0;
    else if (busy_o) quiet_q <= quiet_q + 1'b1;
  end

  assign busy_o = quiet_q != Quiet || rx_valid_i;

endmodule

// From requests to answers: two requests wait or are in work, two answers are computed or sent.
//
// A request is begun when its deadline has not passed and its model is still in the table: the words of its weights
// are then read ahead, while the request before it is in work. A request in work ends with its answer; as late if its
// deadline has passed by then; or as failed after abort_i, without light in time, or after an error of the memory. Then
// the datapath starts anew when the light and the words that are still on their way have gone; no other request is lost.
// While hold_i is 1 no further request is begun, so that the tables and the weights can be changed when working_o is 0.
// Tables: 0 models, 1 layers, 2 look-up of input bytes; fpga.smartnic.program has their words.
module request_engine (
  input  logic         clk_i,
  input  logic         rst_i,
  input  logic         bus_rst_i,
  input  logic [31:0]  now_us_i,
  input  logic         hold_i,
  input  logic         abort_i,
  input  logic [7:0]   preamble_i,
  input  logic [31:0]  limit_i,
  input  logic         sparsity_i,
  input  logic [7:0]   apart_i,
  input  logic [9:0]   loss_factor_i,
  input  logic [39:0]  base_i,
  input  logic         table_write_i,
  input  logic [1:0]   table_select_i,
  input  logic [11:0]  table_address_i,
  // Some bits of a model's word are spare.
  // verilator lint_off UNUSEDSIGNAL
  input  logic [127:0] table_data_i,
  // verilator lint_on UNUSEDSIGNAL
  input  logic [31:0]  model_i,
  output logic         known_o,
  output logic [15:0]  inputs_o,
  output logic         image_ready_o,
  input  logic         image_write_i,
  input  logic [4:0]   image_word_i,
  input  logic [511:0] image_data_i,
  input  logic         request_valid_i,
  output logic         request_ready_o,
  input  logic [95:0]  request_client_i,
  input  logic [31:0]  request_model_i,
  input  logic [15:0]  request_inputs_i,
  input  logic [63:0]  request_number_i,
  input  logic [31:0]  request_deadline_us_i,
  input  logic [31:0]  request_arrival_us_i,
  output logic         answer_valid_o,
  input  logic         answer_ready_i,
  output logic [7:0]   answer_code_o,
  output logic [95:0]  answer_client_o,
  output logic [31:0]  answer_model_o,
  output logic [63:0]  answer_number_o,
  output logic [31:0]  answer_arrival_us_o,
  output logic [31:0]  answer_class_o,
  output logic [63:0]  answer_cycles_o,
  output logic [8:0]   answer_scores_o,
  output logic [15:0]  answer_sum_o,
  input  logic [4:0]   score_word_i,
  output logic [511:0] score_data_o,
  output logic         answered_o,
  output logic         late_o,
  output logic         failed_o,
  output logic         working_o,
  output logic         busy_o,
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
  output logic [199:0] counts_o,
  output logic [183:0] targets_o,
  output logic [10:0]  fires_o
);

  localparam logic [7:0] Answered = 8'd0;
  localparam logic [7:0] Late = 8'd3;
  localparam logic [7:0] Failed = 8'd5;
  localparam int ModelBits = 88;
  localparam int RequestBits = 256 + 16;
  localparam int AnswerBits = 8 + 96 + 32 + 64 + 32 + 32 + 32 + 9 + 16;

  // ---- Tables
  logic [ModelBits-1:0] models_q[16];
  logic [89:0]          layers_q[64];

  always_ff @(posedge clk_i) begin
    if (table_write_i && table_select_i == 2'd0) begin
      models_q[table_address_i[3:0]] <= {table_data_i[127], table_data_i[86:0]};
    end
    if (table_write_i && table_select_i == 2'd1) layers_q[table_address_i[5:0]] <= table_data_i[89:0];
  end

  // A table that was never written has no model in service.
  logic [15:0] written_q;

  always_ff @(posedge clk_i) begin
    if (rst_i) written_q <= '0;
    else if (table_write_i && table_select_i == 2'd0) written_q[table_address_i[3:0]] <= 1'b1;
  end

  // Of the model of a packet that comes in only these matter.
  // verilator lint_off UNUSEDSIGNAL
  logic [ModelBits-1:0] incoming;
  // verilator lint_on UNUSEDSIGNAL

  assign incoming = models_q[model_i[3:0]];

  always_ff @(posedge clk_i) begin
    known_o  <= model_i[31:4] == '0 && written_q[model_i[3:0]] && incoming[87];
    inputs_o <= incoming[71:56];
  end

  // ---- Requests: received, begun and run in turns
  logic                   receive_q, begin_q, run_q;
  logic [1:0]             full_q, begun_q;
  logic [7:0]             code_q[2];
  logic [RequestBits-1:0] requests_q[2];

  assign image_ready_o   = !full_q[receive_q];
  assign request_ready_o = !full_q[receive_q];

  always_ff @(posedge clk_i) begin
    if (request_valid_i && request_ready_o) begin
      requests_q[receive_q] <= {
        request_inputs_i, request_deadline_us_i, request_arrival_us_i, request_number_i, request_model_i, request_client_i
      };
    end
  end

  // ---- The next request is begun: late, gone, or with a job for the reader
  logic [31:0] begin_deadline, begin_arrival;
  logic [15:0] begin_inputs;
  logic [3:0]  begin_model;
  logic        may_begin, begins, begin_late, begin_gone, job_ready, is_restarting, fails;
  // verilator lint_off UNUSEDSIGNAL
  logic [ModelBits-1:0] beginning;
  // verilator lint_on UNUSEDSIGNAL

  assign begin_model    = requests_q[begin_q][99:96];
  assign begin_arrival  = requests_q[begin_q][223:192];
  assign begin_deadline = requests_q[begin_q][255:224];
  assign begin_inputs   = requests_q[begin_q][271:256];
  assign beginning      = models_q[begin_model];
  assign may_begin      = full_q[begin_q] && !begun_q[begin_q] && !hold_i && !is_restarting && !fails;
  assign begin_late     = begin_deadline != '0 && now_us_i - begin_arrival > begin_deadline;
  assign begin_gone     = !beginning[87] || beginning[71:56] != begin_inputs;
  assign begins         = may_begin && (begin_late || begin_gone || job_ready);

  // ---- One request is in work
  logic                   running_q, run, refuse, ends, finished, fault, is_late, memory_error;
  logic [31:0]            run_deadline, run_arrival, cycles;
  logic [7:0]             end_code;
  logic [RequestBits-1:0] request;
  // verilator lint_off UNUSEDSIGNAL
  logic [ModelBits-1:0]   model;
  // verilator lint_on UNUSEDSIGNAL

  logic                   write_q, send_q;
  logic [1:0]             answer_full_q;

  assign request      = requests_q[run_q];
  assign model        = models_q[request[99:96]];
  assign run_arrival  = request[223:192];
  assign run_deadline = request[255:224];

  assign run     = !running_q && begun_q[run_q] && code_q[run_q] == Answered && !answer_full_q[write_q] && !is_restarting;
  assign refuse  = !running_q && begun_q[run_q] && code_q[run_q] != Answered && !answer_full_q[write_q];
  assign fails   = running_q && (abort_i || fault || memory_error);
  assign ends    = refuse || fails || (running_q && finished);
  assign is_late = run_deadline != '0 && now_us_i - run_arrival > run_deadline;

  always_comb begin
    if (refuse) end_code = code_q[run_q];
    else if (fails) end_code = Failed;
    else end_code = is_late ? Late : Answered;
  end

  assign answered_o = ends && end_code == Answered;
  assign late_o     = ends && end_code == Late;
  assign failed_o   = ends && end_code == Failed;

  always_ff @(posedge clk_i) begin
    if (begins) code_q[begin_q] <= begin_late ? Late : begin_gone ? Failed : Answered;
  end

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      receive_q <= 1'b0;
      begin_q   <= 1'b0;
      run_q     <= 1'b0;
      running_q <= 1'b0;
      full_q    <= '0;
      begun_q   <= '0;
    end else begin
      if (request_valid_i && request_ready_o) begin
        full_q[receive_q] <= 1'b1;
        receive_q         <= !receive_q;
      end
      if (begins) begin
        begun_q[begin_q] <= 1'b1;
        begin_q          <= !begin_q;
      end
      if (run) running_q <= 1'b1;
      if (ends) begin
        running_q      <= 1'b0;
        full_q[run_q]  <= 1'b0;
        begun_q[run_q] <= 1'b0;
        run_q          <= !run_q;
      end
      // The words of a request that was begun meanwhile are flushed with the others: it is begun again.
      if (fails) begin
        begun_q[!run_q] <= 1'b0;
        begin_q         <= !run_q;
      end
    end
  end

  // ---- After a failure or a reset: as many cycles as light can be on its way, and until the reader has dropped its words
  logic [5:0] dark_q;
  logic       is_flushing;

  always_ff @(posedge clk_i) begin
    if (rst_i || fails) dark_q <= '1;
    else if (dark_q != '0) dark_q <= dark_q - 1'b1;
  end

  assign is_restarting = dark_q != '0 || is_flushing;

  // ---- Answers
  logic [AnswerBits-1:0] answers_q[2];
  logic [8:0]            scores;
  logic [15:0]           sum;
  logic [31:0]           best;

  always_ff @(posedge clk_i) begin
    if (ends) begin
      answers_q[write_q] <= {end_code, request[95:0], request[127:96], request[191:128], run_arrival, best, cycles + 1'b1, scores, sum};
    end
  end

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      write_q       <= 1'b0;
      send_q        <= 1'b0;
      answer_full_q <= '0;
    end else begin
      if (ends) begin
        answer_full_q[write_q] <= 1'b1;
        write_q                <= !write_q;
      end
      if (answer_valid_o && answer_ready_i) begin
        answer_full_q[send_q] <= 1'b0;
        send_q                <= !send_q;
      end
    end
  end

  assign answer_valid_o = answer_full_q[send_q];
  assign {answer_code_o, answer_client_o, answer_model_o, answer_number_o, answer_arrival_us_o, answer_class_o,
          answer_cycles_o[31:0], answer_scores_o, answer_sum_o} = answers_q[send_q];
  assign answer_cycles_o[63:32] = '0;

  assign working_o = begun_q != '0 || is_restarting;
  assign busy_o    = full_q != '0 || answer_full_q != '0 || is_restarting;

  // ---- Weights
  logic         word_valid, word_ready;
  logic [255:0] word;

  // After rst_i alone the memory still sends the words that it was asked for: they are dropped.
  burst_reader u_reader (
    .clk_i,
    .rst_i(bus_rst_i),
    .base_i,
    .job_valid_i(may_begin && !begin_late && !begin_gone),
    .job_ready_o(job_ready),
    .job_word_i(beginning[31:0]),
    .job_words_i(beginning[55:32]),
    .word_valid_o(word_valid),
    .word_ready_i(word_ready),
    .word_o(word),
    .flush_i(fails || rst_i),
    .flushing_o(is_flushing),
    .error_o(memory_error),
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
    .m_axi_rlast_i
  );

  // ---- Image, datapath, scores
  logic [5:0]   row;
  logic [127:0] image;
  logic         score_valid;
  logic [31:0]  score;

  image_buffers u_images (
    .clk_i,
    .write_i(image_write_i && !image_word_i[4]),
    .write_bank_i(receive_q),
    .write_word_i(image_word_i[3:0]),
    .write_data_i(image_data_i),
    .look_up_write_i(table_write_i && table_select_i == 2'd2),
    .look_up_address_i(table_address_i),
    .look_up_data_i(table_data_i[7:0]),
    .read_bank_i(run_q),
    .read_row_i(row),
    .model_i(request[99:96]),
    .row_o(image)
  );

  streamed_inference u_inference (
    .clk_i,
    .rst_i(rst_i || fails),
    .run_i(run),
    .published_i(model[84]),
    .wrap_i(model[85]),
    .perfect_i(model[86]),
    .layers_i(model[83:80]),
    .layer_o,
    .layer_i(layers_q[model[77:72] + {2'd0, layer_o}]),
    .preamble_i,
    .limit_i,
    .sparsity_i,
    .apart_i,
    .loss_factor_i,
    .word_valid_i(word_valid),
    .word_ready_o(word_ready),
    .word_i(word),
    .row_o(row),
    .image_i(image),
    .dac_activation_o,
    .dac_weight_o,
    .adc_i,
    .score_valid_o(score_valid),
    .score_o(score),
    .finished_o(finished),
    .cycles_o(cycles),
    .fault_o(fault),
    .start_o,
    .heading_o,
    .sending_o,
    .open_o,
    .partial_valid_o,
    .result_valid_o,
    .counts_o,
    .targets_o,
    .fires_o
  );

  score_buffers u_scores (
    .clk_i,
    .rst_i,
    .clear_i(run),
    .write_bank_i(write_q),
    .score_valid_i(score_valid),
    .score_i(score),
    .scores_o(scores),
    .sum_o(sum),
    .class_o(best),
    .read_bank_i(send_q),
    .read_word_i(score_word_i),
    .word_o(score_data_o)
  );

endmodule

// The scores of two answers: one is sent, sixteen scores at a time, while another is computed.
//
// Scores come one by one as float32 and leave in wire order. With them come their ones' complement sum, for the
// checksum of the packet, and the class: the first of the largest, or of a single score whether it is above 0.
module score_buffers (
  input  logic         clk_i,
  input  logic         rst_i,
  input  logic         clear_i,
  input  logic         write_bank_i,
  input  logic         score_valid_i,
  input  logic [31:0]  score_i,
  output logic [8:0]   scores_o,
  output logic [15:0]  sum_o,
  output logic [31:0]  class_o,
  input  logic         read_bank_i,
  input  logic [4:0]   read_word_i,
  output logic [511:0] word_o
);

  localparam int Lanes = 16;

  logic [8:0]  scores_q, best;
  logic [15:0] sum_q;
  logic [17:0] sum;
  logic [16:0] folded;
  logic [31:0] rank, best_rank;
  logic        above;

  for (genvar i = 0; i < Lanes; i++) begin : gen_lanes
    word_memory #(
      .Width(32),
      .Depth(64),
      .AddressWidth(6)
    ) u_scores (
      .clk_i,
      .write_i(score_valid_i && scores_q[3:0] == i[3:0]),
      .write_address_i({write_bank_i, scores_q[8:4]}),
      .word_i({score_i[7:0], score_i[15:8], score_i[23:16], score_i[31:24]}),
      .read_address_i({read_bank_i, read_word_i}),
      .word_o(word_o[i*32+:32])
    );
  end

  // The order of floats is that of signed integers if the magnitude of negative ones is inverted.
  assign rank = score_i[31] ? score_i ^ 32'h7FFF_FFFF : score_i;

  running_maximum #(
    .Width(32),
    .IndexWidth(9)
  ) u_best (
    .clk_i,
    .rst_i,
    .clear_i,
    .valid_i(score_valid_i),
    .sample_i(rank),
    .index_i(scores_q),
    .largest_o(best_rank),
    .index_o(best)
  );

  // Carries go round: 2**16 is 1.
  assign sum    = {2'd0, sum_q} + {2'd0, score_i[31:16]} + {2'd0, score_i[15:0]};
  assign folded = {1'b0, sum[15:0]} + {15'd0, sum[17:16]};

  always_ff @(posedge clk_i) begin
    if (rst_i || clear_i) begin
      scores_q <= '0;
      sum_q    <= '0;
    end else if (score_valid_i) begin
      scores_q <= scores_q + 1'b1;
      sum_q    <= folded[15:0] + {15'd0, folded[16]};
    end
  end

  assign above  = !best_rank[31] && best_rank != '0;
  assign scores_o = scores_q;
  assign sum_o    = sum_q;
  assign class_o  = scores_q == 9'd1 ? {31'd0, above} : {23'd0, best};

endmodule

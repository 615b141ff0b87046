// The reader of weights with all signals of an AXI4 read port, for burst_reader_story.
module burst_reader_axi (
  input  logic         clk_i,
  input  logic         rst_i,
  input  logic         job_valid_i,
  output logic         job_ready_o,
  input  logic [31:0]  job_word_i,
  input  logic [23:0]  job_words_i,
  output logic         word_valid_o,
  input  logic         word_ready_i,
  output logic [255:0] word_o,
  input  logic         flush_i,
  output logic         flushing_o,
  output logic         error_o,
  output logic [3:0]   m_axi_arid,
  output logic [39:0]  m_axi_araddr,
  output logic [7:0]   m_axi_arlen,
  output logic [2:0]   m_axi_arsize,
  output logic [1:0]   m_axi_arburst,
  output logic         m_axi_arvalid,
  input  logic         m_axi_arready,
  input  logic [3:0]   m_axi_rid,
  input  logic [255:0] m_axi_rdata,
  input  logic [1:0]   m_axi_rresp,
  input  logic         m_axi_rlast,
  input  logic         m_axi_rvalid,
  output logic         m_axi_rready
);

  assign m_axi_arid = 4'd0;

  burst_reader u_reader (
    .clk_i,
    .rst_i,
    .base_i(40'h1000),
    .job_valid_i,
    .job_ready_o,
    .job_word_i,
    .job_words_i,
    .word_valid_o,
    .word_ready_i,
    .word_o,
    .flush_i,
    .flushing_o,
    .error_o,
    .m_axi_arvalid_o(m_axi_arvalid),
    .m_axi_arready_i(m_axi_arready),
    .m_axi_araddr_o(m_axi_araddr),
    .m_axi_arlen_o(m_axi_arlen),
    .m_axi_arsize_o(m_axi_arsize),
    .m_axi_arburst_o(m_axi_arburst),
    .m_axi_rvalid_i(m_axi_rvalid),
    .m_axi_rready_o(m_axi_rready),
    .m_axi_rdata_i(m_axi_rdata),
    .m_axi_rresp_i(m_axi_rresp),
    .m_axi_rlast_i(m_axi_rlast)
  );

endmodule

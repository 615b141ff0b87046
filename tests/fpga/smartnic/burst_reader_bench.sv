// The reader of weights on the memory model, with pauses of the address channel, for test_burst_reader.
module burst_reader_bench #(
  parameter int Depth = 64,
  parameter int PlaceWidth = 6
) (
  input  logic         clk_i,
  input  logic         rst_i,
  input  logic [39:0]  base_i,
  input  logic         job_valid_i,
  input  logic [31:0]  job_word_i,
  input  logic [23:0]  job_words_i,
  input  logic         word_ready_i,
  input  logic         flush_i,
  input  logic         hold_i,
  input  logic         write_i,
  input  logic [9:0]   write_address_i,
  input  logic [255:0] write_data_i,
  input  logic [7:0]   latency_i,
  input  logic [15:0]  refresh_every_i,
  input  logic [15:0]  refresh_cycles_i,
  output logic         job_ready_o,
  output logic         word_valid_o,
  output logic [255:0] word_o,
  output logic         flushing_o,
  output logic         error_o,
  output logic         arvalid_o,
  output logic         arready_o,
  output logic [39:0]  araddr_o,
  output logic [7:0]   arlen_o,
  output logic         rvalid_o,
  output logic         rready_o,
  output logic         rlast_o,
  output logic [1:0]   rresp_o
);

  // Payloads are 0 without valid: Icarus would show what was never set.

  logic         arready, rlast;
  logic [39:0]  araddr;
  logic [7:0]   arlen;
  logic [1:0]   rresp;
  logic [2:0]   arsize;
  logic [1:0]   arburst;
  logic [255:0] rdata, word;

  assign arready_o = arready && !hold_i;
  assign word_o    = word_valid_o ? word : '0;
  assign araddr_o  = arvalid_o ? araddr : '0;
  assign arlen_o   = arvalid_o ? arlen : '0;
  assign rlast_o   = rvalid_o && rlast;
  assign rresp_o   = rvalid_o ? rresp : '0;

  burst_reader #(
    .Depth(Depth),
    .PlaceWidth(PlaceWidth)
  ) u_reader (
    .clk_i,
    .rst_i,
    .base_i,
    .job_valid_i,
    .job_ready_o,
    .job_word_i,
    .job_words_i,
    .word_valid_o,
    .word_ready_i,
    .word_o(word),
    .flush_i,
    .flushing_o,
    .error_o,
    .m_axi_arvalid_o(arvalid_o),
    .m_axi_arready_i(arready_o),
    .m_axi_araddr_o(araddr),
    .m_axi_arlen_o(arlen),
    .m_axi_arsize_o(arsize),
    .m_axi_arburst_o(arburst),
    .m_axi_rvalid_i(rvalid_o),
    .m_axi_rready_o(rready_o),
    .m_axi_rdata_i(rdata),
    .m_axi_rresp_i(rresp),
    .m_axi_rlast_i(rlast)
  );

  axi_memory_model #(
    .Words(1024),
    .AddressBits(10)
  ) u_memory (
    .clk_i,
    .rst_i,
    .write_i,
    .write_address_i,
    .write_data_i,
    .latency_i,
    .refresh_every_i,
    .refresh_cycles_i,
    .s_axi_arvalid_i(arvalid_o && !hold_i),
    .s_axi_arready_o(arready),
    .s_axi_araddr_i(araddr),
    .s_axi_arlen_i(arlen),
    .s_axi_arsize_i(arsize),
    .s_axi_arburst_i(arburst),
    .s_axi_rvalid_o(rvalid_o),
    .s_axi_rready_i(rready_o),
    .s_axi_rdata_o(rdata),
    .s_axi_rresp_o(rresp),
    .s_axi_rlast_o(rlast)
  );

endmodule

// Bursts of the reader of weights stay inside a KiB and keep their address until it is taken; its words never exceed its
// queue; a flush ends with nothing on its way.
//
// Of the memory behind the bus this is assumed: it returns the beats that were requested and no others, and marks the
// last one of each burst. It may be reset with the reader alone.
module burst_reader_checks #(
  parameter int Depth = 64,
  parameter int PlaceWidth = 6
) (
  input logic                  clk_i,
  input logic                  rst_i,
  input logic [39:0]           base_i,
  input logic                  job_valid_i,
  input logic                  job_ready_o,
  input logic [31:0]           job_word_i,
  input logic [23:0]           job_words_i,
  input logic                  word_valid_o,
  input logic                  word_ready_i,
  input logic [255:0]          word_o,
  input logic                  flush_i,
  input logic                  flushing_o,
  input logic                  error_o,
  input logic                  m_axi_arvalid_o,
  input logic                  m_axi_arready_i,
  input logic [39:0]           m_axi_araddr_o,
  input logic [7:0]            m_axi_arlen_o,
  input logic [2:0]            m_axi_arsize_o,
  input logic [1:0]            m_axi_arburst_o,
  input logic                  m_axi_rvalid_i,
  input logic                  m_axi_rready_o,
  input logic [255:0]          m_axi_rdata_i,
  input logic [1:0]            m_axi_rresp_i,
  input logic                  m_axi_rlast_i,
  input logic [PlaceWidth:0]   ordered_i,
  input logic [PlaceWidth:0]   bursts_i,
  input logic [PlaceWidth-1:0] write_i,
  input logic [PlaceWidth-1:0] read_i,
  input logic [23:0]           left_i
);

  logic                  known_q = 1'b0;
  logic                  reset_q, waits_q, flush_q;
  logic [34:0]           word_q;
  logic [7:0]            len_q;
  logic [PlaceWidth:0]   owed_q, open_q, pending;
  logic [PlaceWidth-1:0] stored;
  logic                  takes, comes;

  // Words and bursts whose address the memory has taken, and that it has not returned.
  assign takes   = m_axi_arvalid_o && m_axi_arready_i;
  assign comes   = m_axi_rvalid_i && m_axi_rready_o;
  assign pending = m_axi_arvalid_o ? m_axi_arlen_o[PlaceWidth:0] + 1'b1 : '0;
  assign stored  = write_i - read_i;

  always_ff @(posedge clk_i) begin
    known_q <= 1'b1;
    reset_q <= rst_i;
    waits_q <= m_axi_arvalid_o && !m_axi_arready_i;
    flush_q <= flush_i;
    word_q  <= m_axi_araddr_o[39:5];
    len_q   <= m_axi_arlen_o;
    owed_q  <= rst_i ? '0 : owed_q + (takes ? pending : '0) - {{PlaceWidth{1'b0}}, comes};
    open_q  <= rst_i ? '0 : open_q + {{PlaceWidth{1'b0}}, takes} - {{PlaceWidth{1'b0}}, comes && m_axi_rlast_i};
  end

  always_comb begin
    if (known_q) begin
      assume (!m_axi_rvalid_i || owed_q != '0);
      assume (!(m_axi_rvalid_i && owed_q == open_q) || m_axi_rlast_i);
      assume (!(m_axi_rvalid_i && open_q == 1 && owed_q != 1) || !m_axi_rlast_i);
    end
  end

  always_comb begin
    if (known_q) begin
      // The beats of the memory, for the induction.
      memory: assert (owed_q >= open_q && (open_q != '0 || owed_q == '0));
      limits: assert ({1'b0, owed_q} + {1'b0, pending} < Depth);
      counts: assert (bursts_i == open_q + {{PlaceWidth{1'b0}}, m_axi_arvalid_o});
      if (m_axi_arvalid_o) bounds: assert ({3'd0, m_axi_araddr_o[9:5]} + m_axi_arlen_o <= 8'd31);
      if (!flushing_o) fits: assert ({1'b0, ordered_i} == {2'd0, stored} + {1'b0, owed_q} + {1'b0, pending});
      if (!flushing_o) room: assert ({1'b0, ordered_i} < Depth);
      if (word_valid_o) full: assert (stored != '0);
      if (flushing_o) forgets: assert (!word_valid_o && !job_ready_o && ordered_i == '0 && left_i == '0 && stored == '0);
      takes_beats: assert (m_axi_rready_o);
    end
    if (known_q && reset_q) resets: assert (!m_axi_arvalid_o && !word_valid_o && !flushing_o);
    if (known_q && !reset_q && waits_q) keeps: assert (m_axi_arvalid_o && m_axi_araddr_o[39:5] == word_q && m_axi_arlen_o == len_q);
    if (known_q && !reset_q && flush_q) flushes: assert (flushing_o);
  end

endmodule

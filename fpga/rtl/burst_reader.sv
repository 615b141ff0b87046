// Reads jobs of consecutive words from an AXI4 memory ahead of their use, and streams the words in order.
//
// A word has 32 bytes; word n is at base_i + 32 * n, where base_i is a multiple of 32 and does not change while jobs are
// in work. A burst ends at the latest where the next KiB begins, so it has at most 32 beats and never crosses 4 KiB. It is
// requested only when all its words fit into the queue beside those that are there or on their way: the reader takes each
// beat at once. The next job is taken when the last address of one is on its way to the bus.
//
// flush_i forgets all jobs and words. Beats that are still on their way are dropped: no job is taken until flushing_o
// falls. error_o is 1 in the cycle after a word was taken that came with another response than OKAY.
// Depth = 2 ** PlaceWidth words, at least 64.
module burst_reader #(
  parameter int Depth = 256,
  parameter int PlaceWidth = 8
) (
  input  logic         clk_i,
  input  logic         rst_i,
  input  logic [39:0]  base_i,
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
  input  logic         m_axi_rlast_i
);

  localparam logic [PlaceWidth:0] Room = Depth[PlaceWidth:0] - 33;

  logic                  arvalid_q, flushing_q, valid_q, error_q;
  logic [34:0]           next_q, address_q;
  logic [23:0]           left_q;
  logic [4:0]            beats_q;
  logic [PlaceWidth:0]   ordered_q, bursts_q;
  logic [PlaceWidth-1:0] write_q, read_q, read;
  logic [5:0]            span, beats;
  logic                  take, send, final_burst, push, pop, arrived, wrong;

  // The words up to the next KiB, and those of them that the job wants.
  assign span        = 6'd32 - {1'b0, next_q[4:0]};
  assign final_burst = left_q <= {18'd0, span};
  assign beats       = final_burst ? left_q[5:0] : span;

  // One place stays free, so that equal places mean that the queue is empty.
  assign send = left_q != '0 && ordered_q <= Room && (!arvalid_q || m_axi_arready_i) && !flush_i;

  assign job_ready_o = (left_q == '0 || (send && final_burst)) && !flush_i && !flushing_q;
  assign take        = job_valid_i && job_ready_o;

  always_ff @(posedge clk_i) begin
    if (rst_i || flush_i) left_q <= '0;
    else if (take) left_q <= job_words_i;
    else if (send) left_q <= left_q - {18'd0, beats};
  end

  always_ff @(posedge clk_i) begin
    if (take) next_q <= base_i[39:5] + {3'd0, job_word_i};
    else if (send) next_q <= {next_q[34:5] + 1'b1, 5'd0};
  end

  // A flush leaves an address on the bus until it is taken.
  always_ff @(posedge clk_i) begin
    if (rst_i) arvalid_q <= 1'b0;
    else if (send) arvalid_q <= 1'b1;
    else if (m_axi_arready_i) arvalid_q <= 1'b0;
  end

  always_ff @(posedge clk_i) begin
    if (send) begin
      address_q <= next_q;
      beats_q   <= beats[4:0] - 5'd1;
    end
  end

  assign m_axi_arvalid_o = arvalid_q;
  assign m_axi_araddr_o  = {address_q, base_i[4:0]};
  assign m_axi_arlen_o   = {3'd0, beats_q};
  assign m_axi_arsize_o  = 3'd5;
  assign m_axi_arburst_o = 2'd1;
  assign m_axi_rready_o  = 1'b1;

  // Bursts that are requested and not complete: a flush waits until there are none.
  assign arrived = m_axi_rvalid_i && m_axi_rlast_i;

  always_ff @(posedge clk_i) begin
    if (rst_i) bursts_q <= '0;
    else if (send && !arrived) bursts_q <= bursts_q + 1'b1;
    else if (arrived && !send) bursts_q <= bursts_q - 1'b1;
  end

  always_ff @(posedge clk_i) begin
    if (rst_i) flushing_q <= 1'b0;
    else if (flush_i) flushing_q <= 1'b1;
    else if (bursts_q == '0) flushing_q <= 1'b0;
  end

  assign flushing_o = flushing_q;

  // The queue. Its memory is read a cycle ahead of the word at the output. A word keeps whether it came with an error,
  // which concerns the request that takes the word, and no other.
  assign push = m_axi_rvalid_i && !flush_i && !flushing_q;
  assign pop  = valid_q && word_ready_i;
  assign read = pop ? read_q + 1'b1 : read_q;

  word_memory #(
    .Width(257),
    .Depth(Depth),
    .AddressWidth(PlaceWidth)
  ) u_words (
    .clk_i,
    .write_i(push),
    .write_address_i(write_q),
    .word_i({m_axi_rresp_i != 2'd0, m_axi_rdata_i}),
    .read_address_i(read),
    .word_o({wrong, word_o})
  );

  always_ff @(posedge clk_i) begin
    if (rst_i || flush_i) begin
      write_q   <= '0;
      read_q    <= '0;
      valid_q   <= 1'b0;
      ordered_q <= '0;
    end else begin
      if (push) write_q <= write_q + 1'b1;
      read_q    <= read;
      valid_q   <= read != write_q;
      ordered_q <= ordered_q + (send ? {{(PlaceWidth - 5) {1'b0}}, beats} : '0) - {{PlaceWidth{1'b0}}, pop};
    end
  end

  assign word_valid_o = valid_q;

  always_ff @(posedge clk_i) begin
    error_q <= pop && wrong && !rst_i && !flush_i;
  end

  assign error_o = error_q;

endmodule

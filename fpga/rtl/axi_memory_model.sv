// For simulation only: a memory behind an AXI4 read port, with the latency and the refresh pauses of a DRAM.
//
// The first beat of a burst comes latency_i + 2 cycles after its address, or after the burst before it; then a beat comes
// every cycle, and the next burst follows without a gap. Every refresh_every_i cycles (0: never) no beat comes for
// refresh_cycles_i cycles, except one that is already at the output. Bursts are INCR of beats of 32 bytes, aligned, and
// inside the memory; others have the response SLVERR. write_i writes a word past the port.
module axi_memory_model #(
  parameter int Words = 262144,
  parameter int AddressBits = 18
) (
  input  logic                   clk_i,
  input  logic                   rst_i,
  input  logic                   write_i,
  input  logic [AddressBits-1:0] write_address_i,
  input  logic [255:0]           write_data_i,
  input  logic [7:0]             latency_i,
  input  logic [15:0]            refresh_every_i,
  input  logic [15:0]            refresh_cycles_i,
  input  logic                   s_axi_arvalid_i,
  output logic                   s_axi_arready_o,
  input  logic [39:0]            s_axi_araddr_i,
  input  logic [7:0]             s_axi_arlen_i,
  input  logic [2:0]             s_axi_arsize_i,
  input  logic [1:0]             s_axi_arburst_i,
  output logic                   s_axi_rvalid_o,
  input  logic                   s_axi_rready_i,
  output logic [255:0]           s_axi_rdata_o,
  output logic [1:0]             s_axi_rresp_o,
  output logic                   s_axi_rlast_o
);

  // Bursts that wait: {SLVERR, the cycle in which the first beat may leave, beats - 1, first word}.
  localparam int Width = 73 + AddressBits;

  logic [255:0]           words_q[Words];
  logic [Width-1:0]       bursts_q[64];
  logic [Width-1:0]       burst;
  logic [5:0]             write_q, read_q;
  logic [63:0]            now_q;
  logic [7:0]             beat_q;
  logic [15:0]            since_q, pause_q;
  logic [35:0]            final_word;
  logic [AddressBits-1:0] word;
  logic                   take, bad, ripe, load, final_beat;
  logic                   valid_q, last_q, bad_q;
  logic [255:0]           data_q;

  always_ff @(posedge clk_i) begin
    if (write_i) words_q[write_address_i] <= write_data_i;
  end

  assign s_axi_arready_o = write_q + 6'd1 != read_q;
  assign take            = s_axi_arvalid_i && s_axi_arready_o;
  assign final_word      = {1'b0, s_axi_araddr_i[39:5]} + {28'd0, s_axi_arlen_i};
  assign bad = s_axi_arsize_i != 3'd5 || s_axi_arburst_i != 2'd1 || s_axi_araddr_i[4:0] != '0 || final_word >= {4'd0, Words};

  always_ff @(posedge clk_i) begin
    if (take) bursts_q[write_q] <= {bad, now_q + {56'd0, latency_i} + 64'd1, s_axi_arlen_i, s_axi_araddr_i[AddressBits+4:5]};
  end

  assign burst      = bursts_q[read_q];
  assign ripe       = write_q != read_q && now_q >= burst[AddressBits+8+:64];
  assign load       = ripe && pause_q == '0 && (!valid_q || s_axi_rready_i);
  assign word       = burst[AddressBits-1:0] + {{(AddressBits - 8) {1'b0}}, beat_q};
  assign final_beat = beat_q == burst[AddressBits+:8];

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      now_q   <= '0;
      write_q <= '0;
      read_q  <= '0;
      beat_q  <= '0;
      valid_q <= 1'b0;
    end else begin
      now_q <= now_q + 1'b1;
      if (take) write_q <= write_q + 1'b1;
      if (load) beat_q <= final_beat ? '0 : beat_q + 1'b1;
      if (load && final_beat) read_q <= read_q + 1'b1;
      valid_q <= load || (valid_q && !s_axi_rready_i);
    end
  end

  always_ff @(posedge clk_i) begin
    if (load) begin
      data_q <= words_q[word];
      last_q <= final_beat;
      bad_q  <= burst[Width-1];
    end
  end

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      since_q <= '0;
      pause_q <= '0;
    end else begin
      if (since_q + 16'd1 >= refresh_every_i) since_q <= '0;
      else since_q <= since_q + 1'b1;
      if (since_q + 16'd1 == refresh_every_i) pause_q <= refresh_cycles_i;
      else if (pause_q != '0) pause_q <= pause_q - 1'b1;
    end
  end

  assign s_axi_rvalid_o = valid_q;
  assign s_axi_rdata_o  = data_q;
  assign s_axi_rresp_o  = {bad_q, 1'b0};
  assign s_axi_rlast_o  = last_q;

endmodule

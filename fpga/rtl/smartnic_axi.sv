// The smartNIC for a board: registers on AXI4-Lite, frames from and to a MAC, weights from DRAM, streams to the converters.
//
// fpga.smartnic.registers has the registers, of which smartnic_registers is generated. The MAC cannot wait: frames wait in a
// queue, and those that find no room are counted. Its tuser says with the last beat that the frame check was wrong. The
// converters take and give sixteen samples in every cycle; their ready and valid have no effect.
module smartnic_axi (
  input  wire         aclk,
  input  wire         aresetn,
  input  wire         s_axi_awvalid,
  output wire         s_axi_awready,
  input  wire [7:0]   s_axi_awaddr,
  input  wire [2:0]   s_axi_awprot,
  input  wire         s_axi_wvalid,
  output wire         s_axi_wready,
  input  wire [31:0]  s_axi_wdata,
  input  wire [3:0]   s_axi_wstrb,
  output wire         s_axi_bvalid,
  input  wire         s_axi_bready,
  output wire [1:0]   s_axi_bresp,
  input  wire         s_axi_arvalid,
  output wire         s_axi_arready,
  input  wire [7:0]   s_axi_araddr,
  input  wire [2:0]   s_axi_arprot,
  output wire         s_axi_rvalid,
  input  wire         s_axi_rready,
  output wire [31:0]  s_axi_rdata,
  output wire [1:0]   s_axi_rresp,
  input  wire         s_axis_rx_tvalid,
  input  wire [511:0] s_axis_rx_tdata,
  input  wire [63:0]  s_axis_rx_tkeep,
  input  wire         s_axis_rx_tlast,
  input  wire         s_axis_rx_tuser,
  output wire         m_axis_tx_tvalid,
  input  wire         m_axis_tx_tready,
  output wire [511:0] m_axis_tx_tdata,
  output wire [63:0]  m_axis_tx_tkeep,
  output wire         m_axis_tx_tlast,
  output wire         m_axi_arvalid,
  input  wire         m_axi_arready,
  output wire [39:0]  m_axi_araddr,
  output wire [7:0]   m_axi_arlen,
  output wire [2:0]   m_axi_arsize,
  output wire [1:0]   m_axi_arburst,
  input  wire         m_axi_rvalid,
  output wire         m_axi_rready,
  input  wire [255:0] m_axi_rdata,
  input  wire [1:0]   m_axi_rresp,
  input  wire         m_axi_rlast,
  output wire         m_axis_activation_tvalid,
  output wire [255:0] m_axis_activation_tdata,
  output wire         m_axis_weight_tvalid,
  output wire [255:0] m_axis_weight_tdata,
  output wire         s_axis_light_tready,
  // verilator lint_off UNUSEDSIGNAL
  (* maybe_unused *) input  wire         s_axis_light_tvalid,
  // verilator lint_on UNUSEDSIGNAL
  input  wire [255:0] s_axis_light_tdata
);

  // ---- Registers
  wire         reset, register_reset;
  wire [1:0]   control, status;
  wire         hold, sparsity, table_push;
  // Of registers of two words not all bits are used.
  // verilator lint_off UNUSEDSIGNAL
  (* maybe_unused *) wire [63:0] mac, base;
  // verilator lint_on UNUSEDSIGNAL
  wire [31:0]  address, limit;
  wire [15:0]  port, cycles_per_us;
  wire [7:0]   preamble, apart;
  wire [9:0]   loss_factor;
  wire [13:0]  table_address;
  wire [127:0] table_word;
  wire [351:0] counts;
  wire         overrun;

  // CONTROL.RESET resets all that aresetn resets, except the bus.
  assign reset          = !aresetn;
  assign register_reset = reset || control[1];

  logic [31:0] overruns_q;

  always_ff @(posedge aclk) begin
    if (register_reset) overruns_q <= '0;
    else if (overrun && overruns_q != '1) overruns_q <= overruns_q + 1'b1;
  end

  smartnic_registers u_registers (
    .clk_i(aclk),
    .rst_i(reset),
    .datapath_reset_i(register_reset),
    .s_axil_awvalid(s_axi_awvalid),
    .s_axil_awready(s_axi_awready),
    .s_axil_awaddr(s_axi_awaddr),
    .s_axil_awprot(s_axi_awprot),
    .s_axil_wvalid(s_axi_wvalid),
    .s_axil_wready(s_axi_wready),
    .s_axil_wdata(s_axi_wdata),
    .s_axil_wstrb(s_axi_wstrb),
    .s_axil_bvalid(s_axi_bvalid),
    .s_axil_bready(s_axi_bready),
    .s_axil_bresp(s_axi_bresp),
    .s_axil_arvalid(s_axi_arvalid),
    .s_axil_arready(s_axi_arready),
    .s_axil_araddr(s_axi_araddr),
    .s_axil_arprot(s_axi_arprot),
    .s_axil_rvalid(s_axi_rvalid),
    .s_axil_rready(s_axi_rready),
    .s_axil_rdata(s_axi_rdata),
    .s_axil_rresp(s_axi_rresp),
    .CONTROL_o(control),
    .STATUS_i(status),
    .MAC_o(mac),
    .ADDRESS_o(address),
    .PORT_o(port),
    .CYCLES_PER_US_o(cycles_per_us),
    .HOLD_o(hold),
    .PREAMBLE_o(preamble),
    .LIMIT_o(limit),
    .SPARSITY_o(sparsity),
    .BASE_o(base),
    .APART_o(apart),
    .LOSS_FACTOR_o(loss_factor),
    .TABLE_ADDRESS_o(table_address),
    .TABLE_WORD_o(table_word),
    .TABLE_WORD_push_o(table_push),
    .COUNT_received_i(counts[31:0]),
    .COUNT_ignored_i(counts[63:32]),
    .COUNT_corrupt_i(counts[95:64]),
    .COUNT_arp_i(counts[127:96]),
    .COUNT_ping_i(counts[159:128]),
    .COUNT_malformed_i(counts[191:160]),
    .COUNT_unknown_model_i(counts[223:192]),
    .COUNT_refused_i(counts[255:224]),
    .COUNT_answered_i(counts[287:256]),
    .COUNT_late_i(counts[319:288]),
    .COUNT_failed_i(counts[351:320]),
    .COUNT_overrun_i(overruns_q)
  );

  // ---- Frames that wait: {wrong frame check, last, keep, data}
  wire         rx_valid, rx_ready;
  wire [577:0] rx_beat;

  frame_queue #(
    .Width(578),
    .PlaceWidth(9)
  ) u_queue (
    .clk_i(aclk),
    .rst_i(register_reset),
    .valid_i(s_axis_rx_tvalid),
    .last_i(s_axis_rx_tlast),
    .beat_i({s_axis_rx_tuser, s_axis_rx_tlast, s_axis_rx_tkeep, s_axis_rx_tdata}),
    .overrun_o(overrun),
    .valid_o(rx_valid),
    .ready_i(rx_ready),
    .beat_o(rx_beat)
  );

  // ---- The smartNIC
  assign m_axis_activation_tvalid = 1'b1;
  assign m_axis_weight_tvalid     = 1'b1;
  assign s_axis_light_tready      = 1'b1;

  smartnic u_smartnic (
    .clk_i(aclk),
    .rst_i(register_reset),
    .bus_rst_i(reset),
    .mac_i(mac[47:0]),
    .address_i(address),
    .port_i(port),
    .cycles_per_us_i(cycles_per_us),
    .preamble_i(preamble),
    .limit_i(limit),
    .sparsity_i(sparsity),
    .apart_i(apart),
    .loss_factor_i(loss_factor),
    .base_i(base[39:0]),
    .hold_i(hold),
    .abort_i(control[0]),
    .table_write_i(table_push),
    .table_select_i(table_address[13:12]),
    .table_address_i(table_address[11:0]),
    .table_data_i(table_word),
    .counts_o(counts),
    .working_o(status[1]),
    .busy_o(status[0]),
    .rx_valid_i(rx_valid),
    .rx_ready_o(rx_ready),
    .rx_data_i(rx_beat[511:0]),
    .rx_keep_i(rx_beat[575:512]),
    .rx_last_i(rx_beat[576]),
    .rx_bad_i(rx_beat[577]),
    .tx_valid_o(m_axis_tx_tvalid),
    .tx_ready_i(m_axis_tx_tready),
    .tx_data_o(m_axis_tx_tdata),
    .tx_keep_o(m_axis_tx_tkeep),
    .tx_last_o(m_axis_tx_tlast),
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
    .m_axi_rlast_i(m_axi_rlast),
    .dac_activation_o(m_axis_activation_tdata),
    .dac_weight_o(m_axis_weight_tdata),
    .adc_i(s_axis_light_tdata),
    // verilator lint_off PINCONNECTEMPTY
    .layer_o(),
    .start_o(),
    .heading_o(),
    .sending_o(),
    .open_o(),
    .partial_valid_o(),
    .result_valid_o(),
    .inference_counts_o(),
    .inference_targets_o(),
    .inference_fires_o()
    // verilator lint_on PINCONNECTEMPTY
  );

endmodule

// smartnic_axi with simulated light and memory around it: AXI4-Lite, frames, and the back door of the memory at the pins.
module board (
  input  logic         clk_i,
  input  logic         rst_i,
  input  logic         awvalid,
  output logic         awready,
  input  logic [7:0]   awaddr,
  input  logic [2:0]   awprot,
  input  logic         wvalid,
  output logic         wready,
  input  logic [31:0]  wdata,
  input  logic [3:0]   wstrb,
  output logic         bvalid,
  input  logic         bready,
  output logic [1:0]   bresp,
  input  logic         arvalid,
  output logic         arready,
  input  logic [7:0]   araddr,
  input  logic [2:0]   arprot,
  output logic         rvalid,
  input  logic         rready,
  output logic [31:0]  rdata,
  output logic [1:0]   rresp,
  input  logic         rx_valid,
  input  logic [511:0] rx_data,
  input  logic [63:0]  rx_keep,
  input  logic         rx_last,
  input  logic         rx_bad,
  output logic         tx_valid,
  input  logic         tx_ready,
  output logic [511:0] tx_data,
  output logic [63:0]  tx_keep,
  output logic         tx_last,
  input  logic         memory_write,
  input  logic [9:0]   memory_address,
  input  logic [255:0] memory_data
);

  logic [255:0] activation, weight, light, memory_rdata;
  logic         memory_arvalid, memory_arready, memory_rvalid, memory_rready, memory_rlast;
  logic [39:0]  memory_araddr;
  logic [7:0]   memory_arlen;
  logic [2:0]   memory_arsize;
  logic [1:0]   memory_arburst, memory_rresp;

  smartnic_axi u_nic (
    .aclk(clk_i),
    .aresetn(!rst_i),
    .s_axi_awvalid(awvalid),
    .s_axi_awready(awready),
    .s_axi_awaddr(awaddr),
    .s_axi_awprot(awprot),
    .s_axi_wvalid(wvalid),
    .s_axi_wready(wready),
    .s_axi_wdata(wdata),
    .s_axi_wstrb(wstrb),
    .s_axi_bvalid(bvalid),
    .s_axi_bready(bready),
    .s_axi_bresp(bresp),
    .s_axi_arvalid(arvalid),
    .s_axi_arready(arready),
    .s_axi_araddr(araddr),
    .s_axi_arprot(arprot),
    .s_axi_rvalid(rvalid),
    .s_axi_rready(rready),
    .s_axi_rdata(rdata),
    .s_axi_rresp(rresp),
    .s_axis_rx_tvalid(rx_valid),
    .s_axis_rx_tdata(rx_data),
    .s_axis_rx_tkeep(rx_keep),
    .s_axis_rx_tlast(rx_last),
    .s_axis_rx_tuser(rx_bad),
    .m_axis_tx_tvalid(tx_valid),
    .m_axis_tx_tready(tx_ready),
    .m_axis_tx_tdata(tx_data),
    .m_axis_tx_tkeep(tx_keep),
    .m_axis_tx_tlast(tx_last),
    .m_axi_arvalid(memory_arvalid),
    .m_axi_arready(memory_arready),
    .m_axi_araddr(memory_araddr),
    .m_axi_arlen(memory_arlen),
    .m_axi_arsize(memory_arsize),
    .m_axi_arburst(memory_arburst),
    .m_axi_rvalid(memory_rvalid),
    .m_axi_rready(memory_rready),
    .m_axi_rdata(memory_rdata),
    .m_axi_rresp(memory_rresp),
    .m_axi_rlast(memory_rlast),
    .m_axis_activation_tvalid(),
    .m_axis_activation_tdata(activation),
    .m_axis_weight_tvalid(),
    .m_axis_weight_tdata(weight),
    .s_axis_light_tready(),
    .s_axis_light_tvalid(1'b1),
    .s_axis_light_tdata(light)
  );

  axi_memory_model #(
    .Words(1024),
    .AddressBits(10)
  ) u_memory (
    .clk_i,
    .rst_i,
    .write_i(memory_write),
    .write_address_i(memory_address),
    .write_data_i(memory_data),
    .latency_i(8'd40),
    .refresh_every_i(16'd1950),
    .refresh_cycles_i(16'd88),
    .s_axi_arvalid_i(memory_arvalid),
    .s_axi_arready_o(memory_arready),
    .s_axi_araddr_i(memory_araddr),
    .s_axi_arlen_i(memory_arlen),
    .s_axi_arsize_i(memory_arsize),
    .s_axi_arburst_i(memory_arburst),
    .s_axi_rvalid_o(memory_rvalid),
    .s_axi_rready_i(memory_rready),
    .s_axi_rdata_o(memory_rdata),
    .s_axi_rresp_o(memory_rresp),
    .s_axi_rlast_o(memory_rlast)
  );

  photonic_core u_core (
    .clk_i,
    .rst_i,
    .delay_i(4'd7),
    .shift_i(4'd3),
    .apart_delay_i(4'd1),
    .apart_shift_i(4'd5),
    .gain_i(9'd256),
    .noise_i(1'b0),
    .seed_i('0),
    .activation_i(activation),
    .weight_i(weight),
    .samples_o(light)
  );

endmodule

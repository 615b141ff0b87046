// The register file of a small map between free pins: what AXI4-Lite asks, and what its registers are to do.
//
// The bus keeps what it has offered until it is taken. Everything else is free, the reset included.
module register_file_proof #(
  parameter bit Values = 1'b0
) (
  input logic        clk_i,
  input logic        rst_i,
  input logic        awvalid,
  input logic [5:0]  awaddr,
  input logic        wvalid,
  input logic [31:0] wdata,
  input logic [3:0]  wstrb,
  input logic        bready,
  input logic        arvalid,
  input logic [5:0]  araddr,
  input logic        rready,
  input logic [4:0]  shown
);

  localparam int Stages = 2;

  logic        awready, wready, bvalid, arready, rvalid;
  logic [1:0]  bresp, rresp;
  logic [31:0] rdata;
  logic [1:0]  control;
  logic [9:0]  level;
  logic [39:0] row;
  logic [32:0] mask;
  logic        push, datapath_reset;

  assign datapath_reset = rst_i || control[1];

  small_registers dut (
    .clk_i,
    .rst_i,
    .datapath_reset_i(datapath_reset),
    .s_axil_awvalid(awvalid),
    .s_axil_awready(awready),
    .s_axil_awaddr(awaddr),
    .s_axil_awprot(3'b0),
    .s_axil_wvalid(wvalid),
    .s_axil_wready(wready),
    .s_axil_wdata(wdata),
    .s_axil_wstrb(wstrb),
    .s_axil_bvalid(bvalid),
    .s_axil_bready(bready),
    .s_axil_bresp(bresp),
    .s_axil_arvalid(arvalid),
    .s_axil_arready(arready),
    .s_axil_araddr(araddr),
    .s_axil_arprot(3'b0),
    .s_axil_rvalid(rvalid),
    .s_axil_rready(rready),
    .s_axil_rdata(rdata),
    .s_axil_rresp(rresp),
    .CONTROL_o(control),
    .LEVEL_o(level),
    .SHOWN_i(shown),
    .ROW_o(row),
    .MASK_o(mask),
    .MASK_push_o(push)
  );

  // ---- What came so far, and what is still to be answered.
  logic        past_q = 1'b0, address_q, data_q, read_q, acts_q;
  logic [3:0]  age_q;
  logic [5:0]  address, read_address;
  logic [31:0] data;
  logic [3:0]  strobes;

  always_ff @(posedge clk_i) begin
    past_q <= 1'b1;
    if (rst_i) begin
      address_q <= 1'b0;
      data_q    <= 1'b0;
      read_q    <= 1'b0;
      age_q     <= '0;
      acts_q    <= 1'b0;
    end else begin
      if (bvalid && bready) begin
        address_q <= 1'b0;
        data_q    <= 1'b0;
      end
      if (awvalid && awready) begin
        address_q <= 1'b1;
        address   <= awaddr;
      end
      if (wvalid && wready) begin
        data_q  <= 1'b1;
        data    <= wdata;
        strobes <= wstrb;
      end
      acts_q <= address_q && data_q && !bvalid;
      if (rvalid && rready) read_q <= 1'b0;
      if (arvalid && arready) begin
        read_q       <= 1'b1;
        read_address <= araddr;
      end
      age_q <= !read_q || (rvalid && rready) ? '0 : age_q == '1 ? '1 : age_q + 1'b1;
    end
  end

  // ---- The bus.
  always_ff @(posedge clk_i) begin
    if (!past_q) assume (rst_i);
    if (past_q && !$past(rst_i) && !rst_i) begin
      if ($past(awvalid && !awready)) assume (awvalid && awaddr == $past(awaddr));
      if ($past(wvalid && !wready)) assume (wvalid && wdata == $past(wdata) && wstrb == $past(wstrb));
      if ($past(arvalid && !arready)) assume (arvalid && araddr == $past(araddr));
    end
  end

  // ---- AXI4-Lite: an answer per request and none without, at once, and as it is until it is taken.
  always_ff @(posedge clk_i) begin
    if (past_q && !rst_i) begin
      takes_one_write: assert (awready == !address_q && wready == !data_q);
      answers_a_write: assert (!bvalid || (address_q && data_q));
      takes_one_read: assert (arready == !read_q);
      answers_a_read: assert (rvalid == (read_q && age_q >= Stages));
      never_an_error: assert (bresp == '0 && rresp == '0);
      if (!$past(rst_i)) begin
        a_write_is_answered_at_once: assert (!$past(address_q && data_q && !bvalid) || bvalid);
        an_answer_waits: assert (!$past(bvalid && !bready) || bvalid);
        data_wait: assert (!$past(rvalid && !rready) || (rvalid && rdata == $past(rdata)));
      end
      cover_write: cover (bvalid && $past(bvalid) && !$past(bready, 2));
      cover_read: cover (rvalid && $past(rvalid && !rready));
    end
  end

  // ---- The registers.
  logic [9:0]  level_q;
  logic [63:0] row_q;
  logic [31:0] mask_q, bytes, expected_q;
  logic [1:0]  control_q;
  logic        push_q, high_q;
  logic [3:0]  word;

  assign bytes = {{8{strobes[3]}}, {8{strobes[2]}}, {8{strobes[1]}}, {8{strobes[0]}}};
  assign word  = address[5:2];

  always_ff @(posedge clk_i) begin
    control_q <= !rst_i && acts_q && word == 1 ? data[1:0] & bytes[1:0] : '0;
    push_q    <= !rst_i && acts_q && word == 7 && strobes != '0;
    high_q    <= !rst_i && acts_q && word == 7 && data[0] && strobes[0];
    if (datapath_reset) begin
      level_q <= 10'h2A5;
      row_q   <= '0;
      mask_q  <= '0;
    end else if (acts_q) begin
      if (word == 2) level_q <= (level_q & ~bytes[9:0]) | (data[9:0] & bytes[9:0]);
      if (word == 4) row_q[31:0] <= (row_q[31:0] & ~bytes) | (data & bytes);
      if (word == 5) row_q[63:32] <= (row_q[63:32] & ~bytes) | (data & bytes);
      if (word == 6) mask_q <= (mask_q & ~bytes) | (data & bytes);
    end
    // A read shows what a register holds in the cycle after it was taken.
    if (read_q && age_q == '0) begin
      case (read_address[5:2])
        4'd0: expected_q <= 32'hC0FFEE01;
        4'd2: expected_q <= {22'b0, level_q};
        4'd3: expected_q <= {27'b0, shown};
        4'd4: expected_q <= row_q[31:0];
        4'd5: expected_q <= row_q[63:32];
        4'd8: expected_q <= 32'h00001234;
        default: expected_q <= '0;
      endcase
    end
  end

  if (Values) begin : gen_values
    always_ff @(posedge clk_i) begin
      if (past_q) begin
        values: assert (level == level_q && row == row_q[39:0] && mask[31:0] == mask_q);
        acts: assert (control == control_q && push == push_q && mask[32] == high_q);
        reads: assert (!rvalid || rdata == expected_q);
        cover_push: cover (push && mask == 33'h1_0000_0081);
        cover_level: cover (rvalid && rdata == 32'h0000_0377);
      end
    end
  end

endmodule

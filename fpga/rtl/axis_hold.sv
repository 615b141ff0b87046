// A beat at an AXI-Stream output outlives a reset of the datapath behind it: valid never falls without ready.
//
// restart_i resets the datapath, whose beat would be gone in the next cycle: it is kept here until it is taken. The
// datapath is not ready meanwhile. Otherwise this is wires. rst_i, the reset of the bus, ends a beat.
module axis_hold #(
  parameter int Width = 16
) (
  input  logic             clk_i,
  input  logic             rst_i,
  input  logic             restart_i,
  input  logic             valid_i,
  input  logic [Width-1:0] data_i,
  output logic             ready_o,
  output logic             valid_o,
  output logic [Width-1:0] data_o,
  input  logic             ready_i
);

  logic             kept_q;
  logic [Width-1:0] data_q;

  always_ff @(posedge clk_i) begin
    if (rst_i) kept_q <= 1'b0;
    else if (restart_i) kept_q <= valid_o && !ready_i;
    else if (ready_i) kept_q <= 1'b0;
  end

  always_ff @(posedge clk_i) begin
    if (restart_i && !kept_q) data_q <= data_i;
  end

  assign valid_o = valid_i || kept_q;
  assign data_o  = kept_q ? data_q : data_i;
  assign ready_o = ready_i && !kept_q;

endmodule

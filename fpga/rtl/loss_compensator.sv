// Light that was lost on its way, made up for: bits [14:7] of each sample times gain_i / 128, 255 at most.
//
// A sample comes a cycle later. With gain_i 128 it stays as it is.
module loss_compensator #(
  parameter int Lanes = 16
) (
  input  logic                clk_i,
  input  logic [8:0]          gain_i,
  // Only bits [14:7] of a sample are light.
  // verilator lint_off UNUSEDSIGNAL
  input  logic [Lanes*16-1:0] samples_i,
  // verilator lint_on UNUSEDSIGNAL
  output logic [Lanes*16-1:0] samples_o
);

  for (genvar i = 0; i < Lanes; i++) begin : gen_lanes
    // verilator lint_off UNUSEDSIGNAL
    logic [16:0] product;
    // verilator lint_on UNUSEDSIGNAL
    logic [7:0]  light_q;

    assign product = {9'd0, samples_i[i*16+7+:8]} * {8'd0, gain_i};

    always_ff @(posedge clk_i) light_q <= product[16:15] == '0 ? product[14:7] : 8'hFF;

    assign samples_o[i*16+:16] = {1'b0, light_q, 7'd0};
  end

endmodule

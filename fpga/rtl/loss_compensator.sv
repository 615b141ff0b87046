// Samples as if no light were lost: the light, bits [14:7], times factor_i / 128, at most 255. Two cycles later.
//
// The published block does not shift back by 7. A loss to gain / 256 needs the factor 32768 / gain; 128 is no loss.
module loss_compensator #(
  parameter int Lanes = 16
) (
  input  logic                clk_i,
  input  logic                rst_i,
  input  logic [9:0]          factor_i,
  // Bits [14:7] of a sample are the light.
  // verilator lint_off UNUSEDSIGNAL
  input  logic [Lanes*16-1:0] samples_i,
  // verilator lint_on UNUSEDSIGNAL
  output logic [Lanes*16-1:0] samples_o
);

  for (genvar i = 0; i < Lanes; i++) begin : gen_lanes
    // The lowest 7 bits are below a step of light.
    // verilator lint_off UNUSEDSIGNAL
    logic [17:0] product_q;
    // verilator lint_on UNUSEDSIGNAL
    logic [7:0]  light_q;

    always_ff @(posedge clk_i) begin
      if (rst_i) begin
        product_q <= '0;
        light_q   <= '0;
      end else begin
        product_q <= {10'd0, samples_i[i*16+7+:8]} * {8'd0, factor_i};
        light_q   <= product_q[17:15] == '0 ? product_q[14:7] : 8'd255;
      end
    end

    assign samples_o[i*16+:16] = {1'b0, light_q, 7'd0};
  end

endmodule

// Samples of a converter, delay_i cycles and shift_i samples later. Sample 0 of a cycle is the first in time.
module sample_delay #(
  parameter int Lanes = 16,
  parameter int MaxDelay = 15
) (
  input  logic                clk_i,
  input  logic                rst_i,
  input  logic [3:0]          delay_i,
  input  logic [3:0]          shift_i,
  input  logic [Lanes*16-1:0] samples_i,
  output logic [Lanes*16-1:0] samples_o
);

  localparam int Bits = Lanes * 16;

  // Element d are the samples of d cycles ago. One more than the delay: a shift needs the cycle before, too.
  logic [Bits-1:0] history[MaxDelay + 2];

  assign history[0] = samples_i;
  for (genvar d = 0; d <= MaxDelay; d++) begin : gen_delay
    logic [Bits-1:0] samples_q;

    always_ff @(posedge clk_i) begin
      if (rst_i) samples_q <= '0;
      else samples_q <= history[d];
    end
    assign history[d+1] = samples_q;
  end

  logic [Bits-1:0]   latest, earlier;
  logic [2*Bits-1:0] window;
  logic [4:0]        first;

  assign latest    = history[{1'b0, delay_i}];
  assign earlier   = history[{1'b0, delay_i}+5'd1];
  assign window    = {latest, earlier};
  assign first     = 5'd16 - {1'b0, shift_i};
  assign samples_o = window[first*16+:Bits];

endmodule

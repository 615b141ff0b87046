// The sum of 2 ** Stages signed samples, without loss, one stage a cycle.
module adder_tree #(
  parameter int Stages = 4,
  parameter int Width = 9
) (
  input  logic                         clk_i,
  input  logic                         rst_i,
  input  logic [2**Stages*Width-1:0]   samples_i,
  output logic [Width+Stages-1:0]      sum_o
);

  // All in the width of the sum: what a stage does not need yet is copies of the sign.
  localparam int SumWidth = Width + Stages;
  localparam int Samples = 1 << Stages;

  // Sum n is of the sums 2 * n and 2 * n + 1 of the cycle before; those from Samples on are the samples.
  logic [SumWidth-1:0] sums[2*Samples];

  for (genvar i = 0; i < Samples; i++) begin : gen_extend
    assign sums[Samples+i] = {{Stages{samples_i[i*Width+Width-1]}}, samples_i[i*Width+:Width]};
  end

  for (genvar n = 1; n < Samples; n++) begin : gen_sums
    logic [SumWidth-1:0] sum_q;

    always_ff @(posedge clk_i) begin
      if (rst_i) sum_q <= '0;
      else sum_q <= sums[2*n] + sums[2*n+1];
    end

    assign sums[n] = sum_q;
  end

  assign sums[0] = '0;
  assign sum_o   = sums[1];

endmodule

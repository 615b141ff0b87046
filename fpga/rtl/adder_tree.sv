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

  logic [2**Stages*SumWidth-1:0] stage[Stages + 1];

  for (genvar i = 0; i < 2 ** Stages; i++) begin : gen_extend
    assign stage[0][i*SumWidth+:SumWidth] = {
      {Stages{samples_i[i*Width+Width-1]}}, samples_i[i*Width+:Width]
    };
  end

  for (genvar s = 0; s < Stages; s++) begin : gen_stages
    localparam int Sums = 2 ** (Stages - 1 - s);
    logic [Sums*SumWidth-1:0] sums_q, sums;

    for (genvar i = 0; i < Sums; i++) begin : gen_sums
      assign sums[i*SumWidth+:SumWidth] = stage[s][2*i*SumWidth+:SumWidth]
                                          + stage[s][(2*i+1)*SumWidth+:SumWidth];
    end

    always_ff @(posedge clk_i) begin
      if (rst_i) sums_q <= '0;
      else sums_q <= sums;
    end

    assign stage[s+1] = {{(2 ** Stages - Sums) * SumWidth{1'b0}}, sums_q};
  end

  assign sum_o = stage[Stages][SumWidth-1:0];

  logic unused;
  assign unused = ^stage[Stages];

endmodule

// A word of some cycles ago. It has no reset: what travels beside it says when the word counts.
module delay_line #(
  parameter int Width = 16,
  parameter int Cycles = 4
) (
  input  logic             clk_i,
  input  logic [Width-1:0] word_i,
  output logic [Width-1:0] word_o
);

  logic [Width-1:0] words[Cycles + 1];

  assign words[0] = word_i;
  for (genvar i = 0; i < Cycles; i++) begin : gen_cycles
    logic [Width-1:0] word_q;

    always_ff @(posedge clk_i) word_q <= words[i];
    assign words[i+1] = word_q;
  end

  assign word_o = words[Cycles];

endmodule

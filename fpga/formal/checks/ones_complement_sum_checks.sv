// The sum is that of the words of three cycles ago, added one after the other, each carry at the low end.
module ones_complement_sum_checks #(
  parameter int Words = 8,
  parameter int Width = 4,
  parameter int CarryBits = 3
) (
  input logic                   clk_i,
  input logic                   rst_i,
  input logic [Words*Width-1:0] words_i,
  input logic [Width-1:0]       sum_o
);

  logic [Width:0] partial[Words+1];

  assign partial[0] = '0;
  for (genvar i = 0; i < Words; i++) begin : gen_words
    logic [Width:0] raised;

    assign raised       = partial[i] + {1'b0, words_i[i*Width+:Width]};
    assign partial[i+1] = {1'b0, raised[Width-1:0]} + {{Width{1'b0}}, raised[Width]};
  end

  logic [2:0]       known_q = '0;
  logic [2:0]       any_q;
  logic [Width-1:0] first_q, second_q, third_q;

  always_ff @(posedge clk_i) begin
    known_q  <= rst_i ? '0 : {known_q[1:0], 1'b1};
    any_q    <= {any_q[1:0], |words_i};
    first_q  <= partial[Words][Width-1:0];
    second_q <= first_q;
    third_q  <= second_q;
  end

  always_comb begin
    if (known_q[2]) sums: assert (sum_o == third_q);
    // A sum of 0 says that there was nothing: that is how a checksum of 0xFFFF differs from none.
    if (known_q[2]) nonzero: assert ((sum_o != '0) == any_q[2]);
  end

endmodule

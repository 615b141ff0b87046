// The sum of all samples of Stages cycles ago, added one after the other.
module adder_tree_checks #(
  parameter int Stages = 2,
  parameter int Width = 4
) (
  input logic                       clk_i,
  input logic                       rst_i,
  input logic [2**Stages*Width-1:0] samples_i,
  input logic [Width+Stages-1:0]    sum_o
);

  logic signed [Width+Stages-1:0] partial[2**Stages+1];

  assign partial[0] = '0;
  for (genvar i = 0; i < 2 ** Stages; i++) begin : gen_samples
    logic signed [Width-1:0]        sample;
    logic signed [Width+Stages-1:0] term;

    assign sample       = samples_i[i*Width+:Width];
    assign term         = sample;
    assign partial[i+1] = partial[i] + term;
  end

  // As many cycles as there are stages; a reset within them empties the tree.
  logic [Stages-1:0]       known_q = '0;
  logic [Width+Stages-1:0] sum_q[Stages];

  always_ff @(posedge clk_i) known_q <= rst_i ? '0 : {known_q[Stages-2:0], 1'b1};

  for (genvar s = 0; s < Stages; s++) begin : gen_delay
    always_ff @(posedge clk_i) sum_q[s] <= s == 0 ? partial[2**Stages] : sum_q[s == 0 ? 0 : s-1];
  end

  always_comb begin
    if (known_q[Stages-1]) sums: assert (sum_o == sum_q[Stages-1]);
  end

endmodule

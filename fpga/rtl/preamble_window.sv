// The samples of two cycles in a row, and the mean of every run of Lanes samples that begins in the first of them.
//
// Means are taken by a tree of truncating pairwise means, one stage a cycle. current_o are the samples of
// Stages + 1 cycles ago and next_o those that came after; means_o[k] is the mean of the run that begins at sample k of
// current_o. Lanes is 2 ** Stages.
module preamble_window #(
  parameter int Lanes = 16,
  parameter int Width = 16,
  parameter int Stages = 4
) (
  input  logic                   clk_i,
  input  logic                   rst_i,
  input  logic [Lanes*Width-1:0] samples_i,
  output logic [Lanes*Width-1:0] current_o,
  output logic [Lanes*Width-1:0] next_o,
  output logic [Lanes*Width-1:0] means_o
);

  localparam int Bits = Lanes * Width;

  // Element i is the input of i cycles ago.
  logic [Bits-1:0]   history[Stages + 2];
  // The last stage has a mean of every place of both cycles: those of the second cycle are not read.
  // verilator lint_off UNUSEDSIGNAL
  logic [2*Bits-1:0] stage[Stages + 1];
  // verilator lint_on UNUSEDSIGNAL

  assign history[0] = samples_i;
  for (genvar i = 0; i <= Stages; i++) begin : gen_history
    logic [Bits-1:0] samples_q;

    always_ff @(posedge clk_i) begin
      if (rst_i) samples_q <= '0;
      else samples_q <= history[i];
    end
    assign history[i+1] = samples_q;
  end

  assign stage[0] = {history[0], history[1]};
  for (genvar i = 0; i < Stages; i++) begin : gen_stages
    pairwise_means #(
      .Positions(2 * Lanes),
      .Distance(2 ** i),
      .Width(Width)
    ) u_means (
      .clk_i(clk_i),
      .rst_i(rst_i),
      .samples_i(stage[i]),
      .means_o(stage[i+1])
    );
  end

  assign current_o = history[Stages+1];
  assign next_o    = history[Stages];
  assign means_o   = stage[Stages][Bits-1:0];

endmodule

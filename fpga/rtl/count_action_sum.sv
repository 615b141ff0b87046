// The sum of the samples of all beats that a count has counted, this cycle's included (R11).
//
// Samples (SampleWidth at most Width) are extended to Width, added modulo 2**Width, and the sum is shifted right (R10).
// clear_i begins the next sum: the count fires, or is cleared.
module count_action_sum #(
  parameter int Samples = 1,
  parameter int SampleWidth = 16,
  parameter bit SampleSigned = 1'b0,
  parameter int Width = 32,
  parameter bit Accumulate = 1'b1,
  parameter int Shift = 0,
  parameter bit Signed = 1'b0
) (
  input  logic                           clk_i,
  input  logic                           rst_i,
  input  logic                           clear_i,
  input  logic [Samples-1:0]             take_i,
  input  logic [Samples*SampleWidth-1:0] samples_i,
  output logic [Width-1:0]               sum_o
);

  localparam int Sign = SampleWidth - 1;
  localparam int Extension = Width - SampleWidth;

  logic [Samples*Width-1:0] terms;
  logic [Width-1:0]         base, sum, sum_q;

  for (genvar i = 0; i < Samples; i++) begin : gen_terms
    assign terms[i*Width+:Width] = {Width{take_i[i]}} & {
      {Extension{SampleSigned && samples_i[i*SampleWidth+Sign]}},
      samples_i[i*SampleWidth+:SampleWidth]
    };
  end

  // A level count counts beats in the cycle of its fire alone.
  assign base = Accumulate ? sum_q : '0;

  always_comb begin
    sum = base;
    for (int i = 0; i < Samples; i++) sum = sum + terms[i*Width+:Width];
  end

  if (Shift == 0) begin : gen_whole
    assign sum_o = sum;
  end else if (Shift < Width) begin : gen_shift
    logic fill;
    assign fill  = Signed && sum[Width-1];
    assign sum_o = {{Shift{fill}}, sum[Width-1:Shift]};
  end else begin : gen_shifted_out
    assign sum_o = {Width{Signed && sum[Width-1]}};
  end

  always_ff @(posedge clk_i) begin
    if (rst_i || clear_i) sum_q <= '0;
    else sum_q <= sum;
  end

endmodule

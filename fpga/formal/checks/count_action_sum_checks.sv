// The sum of the samples of all beats counted since the last fire or clear, modulo 2**Width (R10, R11).
//
// base_i is the register of the block, terms_i what it adds. check_i says when the sum is looked at: in a module, that
// of a level count at its fire alone. expected_o is the sum as it is to be. The terms are compared one by one, and the
// sum is that of the terms of the block: a solver finds two sums of many wide samples equal only if their terms are the
// same signals.
module count_action_sum_checks #(
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
  input  logic [Width-1:0]               sum_o,
  input  logic [Width-1:0]               base_i,
  input  logic [Samples*Width-1:0]       terms_i,
  input  logic                           check_i,
  output logic [Width-1:0]               expected_o
);

  logic [Samples-1:0]      differs;
  logic [Width-1:0]        partial[Samples+1];
  logic signed [Width-1:0] whole;
  logic [Width-1:0]        sum_q;
  logic                    known_q = 1'b0;

  assign partial[0] = Accumulate ? sum_q : '0;

  for (genvar i = 0; i < Samples; i++) begin : gen_samples
    logic signed [SampleWidth:0] sample;
    logic signed [Width-1:0]     term;

    assign sample = {
      SampleSigned && samples_i[i*SampleWidth+SampleWidth-1],
      samples_i[i*SampleWidth+:SampleWidth]
    };
    assign term         = sample;
    assign differs[i]   = terms_i[i*Width+:Width] != (take_i[i] ? term : '0);
    assign partial[i+1] = partial[i] + terms_i[i*Width+:Width];
  end

  assign whole = partial[Samples];
  if (Signed) begin : gen_signed
    assign expected_o = whole >>> Shift;
  end else begin : gen_unsigned
    assign expected_o = partial[Samples] >> Shift;
  end

  always_ff @(posedge clk_i) begin
    known_q <= 1'b1;
    if (rst_i || clear_i) sum_q <= '0;
    else sum_q <= partial[Samples];
  end

  always_comb begin
    if (known_q && check_i) terms: assert (differs == '0);
    if (Accumulate && known_q) adds: assert (base_i == sum_q);
    if (known_q && check_i) sums: assert (sum_o == expected_o);
  end

endmodule

// The extreme sample of all beats counted since the last fire or clear, and how many were counted before it (R14).
//
// any_i, best_i, index_i and counted_i are the registers of the block. check_i says when the beat is looked at.
// expected_o is the beat as it is to be.
module count_action_extreme_checks #(
  parameter int Samples = 1,
  parameter int Width = 32,
  parameter bit Accumulate = 1'b1,
  parameter int Shift = 0,
  parameter bit Signed = 1'b0,
  parameter bit Minimum = 1'b0,
  parameter bit WithIndex = 1'b0
) (
  input  logic                                     clk_i,
  input  logic                                     rst_i,
  input  logic                                     clear_i,
  input  logic [Samples-1:0]                       take_i,
  input  logic [Samples*Width-1:0]                 samples_i,
  input  logic [(WithIndex ? 2*Width : Width)-1:0] beat_o,
  input  logic                                     any_i,
  input  logic [Width-1:0]                         best_i,
  input  logic [Width-1:0]                         index_i,
  input  logic [Width-1:0]                         counted_i,
  input  logic                                     check_i,
  output logic [(WithIndex ? 2*Width : Width)-1:0] expected_o
);

  logic [Samples:0]        any;
  logic [Width-1:0]        best[Samples+1];
  logic [Width-1:0]        place[Samples+1];
  logic [Width-1:0]        number[Samples+1];
  logic                    any_q;
  logic [Width-1:0]        best_q, place_q, number_q, result;
  logic                    known_q = 1'b0;

  assign any[0]    = Accumulate && any_q;
  assign best[0]   = Accumulate ? best_q : '0;
  assign place[0]  = Accumulate ? place_q : '0;
  assign number[0] = Accumulate ? number_q : '0;

  for (genvar i = 0; i < Samples; i++) begin : gen_samples
    logic signed [Width:0] sample, former;
    logic                  beats;

    assign sample      = {Signed && samples_i[i*Width+Width-1], samples_i[i*Width+:Width]};
    assign former      = {Signed && best[i][Width-1], best[i]};
    assign beats       = take_i[i] && !(any[i] && (Minimum ? former <= sample : former >= sample));
    assign any[i+1]    = any[i] || take_i[i];
    assign best[i+1]   = beats ? samples_i[i*Width+:Width] : best[i];
    assign place[i+1]  = beats ? number[i] : place[i];
    assign number[i+1] = number[i] + {{(Width - 1) {1'b0}}, take_i[i]};
  end

  logic signed [Width-1:0] whole;
  assign whole = best[Samples];
  if (Signed) begin : gen_signed
    assign result = whole >>> Shift;
  end else begin : gen_unsigned
    assign result = best[Samples] >> Shift;
  end
  if (WithIndex) begin : gen_index
    assign expected_o = {place[Samples], result};
  end else begin : gen_no_index
    assign expected_o = result;
  end

  always_ff @(posedge clk_i) begin
    known_q <= 1'b1;
    if (rst_i || clear_i) begin
      any_q    <= 1'b0;
      best_q   <= '0;
      place_q  <= '0;
      number_q <= '0;
    end else begin
      any_q    <= any[Samples];
      best_q   <= best[Samples];
      place_q  <= place[Samples];
      number_q <= number[Samples];
    end
  end

  always_comb begin
    if (Accumulate && known_q) keeps: assert (any_i == any_q && best_i == best_q);
    if (Accumulate && known_q) numbers: assert (index_i == place_q && counted_i == number_q);
    if (known_q && check_i) chooses: assert (beat_o == expected_o);
  end

endmodule

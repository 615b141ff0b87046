// Beats of a stream that a driver pushes through registers: each waits until it is taken.
//
// A push offers the beats of the streams in mask_i, whose data the driver has written before. The
// driver leaves those data alone while waiting_o is 1.
//
// ready_i comes late in its cycle. Merged with the logic before it, the bits of valid_q would need wider look-up tables.
(* keep_hierarchy *)
module portal_source #(
  parameter int Streams = 1
) (
  input  logic               clk_i,
  input  logic               rst_i,
  input  logic               push_i,
  input  logic [Streams-1:0] mask_i,
  input  logic [Streams-1:0] ready_i,
  output logic [Streams-1:0] valid_o,
  output logic [Streams-1:0] waiting_o
);

  logic [Streams-1:0] valid_q, pushed;

  assign pushed = push_i ? mask_i : '0;

  always_ff @(posedge clk_i) begin
    if (rst_i) valid_q <= '0;
    else valid_q <= (valid_q & ~ready_i) | pushed;
  end

  assign valid_o   = valid_q;
  assign waiting_o = valid_q | pushed;

endmodule

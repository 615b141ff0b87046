// Which bytes of a frame belong to its packet, beat by beat, and whether the frame holds the packet.
//
// length_i is the length of frame header and packet, read in the first beat. needed_o are the bytes of this beat that
// belong to it: the others are padding. short_o, in the last beat: the frame ends before its packet. long_o: the frame
// has more than Limit bytes. keep_i has no gaps; all beats but the last are full.
module frame_extent #(
  parameter int Bytes = 64,
  parameter int Places = 6,
  parameter int Limit = 1514,
  parameter int LengthWidth = 17,
  parameter int BeatWidth = 5
) (
  input  logic                   clk_i,
  input  logic                   rst_i,
  input  logic                   take_i,
  input  logic                   first_i,
  input  logic                   last_i,
  input  logic [Bytes-1:0]       keep_i,
  input  logic [LengthWidth-1:0] length_i,
  output logic [BeatWidth-1:0]   beat_o,
  output logic [Bytes-1:0]       needed_o,
  output logic                   short_o,
  output logic                   long_o
);

  localparam int LastBeat = (Limit - 1) / Bytes;
  localparam int LastBytes = Limit - LastBeat * Bytes;

  logic [LengthWidth-1:0] rest, rest_q;
  logic [BeatWidth-1:0]   beat_q;
  logic                   more;

  // The bytes of the packet from this beat on, and the number of the beat, which stops at its largest value.
  assign rest   = first_i ? length_i : rest_q;
  assign beat_o = first_i ? '0 : beat_q;
  assign more   = |rest[LengthWidth-1:Places];

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      rest_q <= '0;
      beat_q <= '0;
    end else if (take_i) begin
      rest_q <= more ? {rest[LengthWidth-1:Places] - 1'b1, rest[Places-1:0]} : '0;
      beat_q <= beat_o == '1 ? beat_o : beat_o + 1'b1;
    end
  end

  for (genvar i = 0; i < Bytes; i++) begin : gen_bytes
    assign needed_o[i] = rest > i[LengthWidth-1:0];
  end

  assign short_o = last_i && (|(needed_o & ~keep_i) || (more && rest != Bytes[LengthWidth-1:0]));
  assign long_o  = beat_o > LastBeat[BeatWidth-1:0] || (beat_o == LastBeat[BeatWidth-1:0] && |(keep_i >> LastBytes));

endmodule

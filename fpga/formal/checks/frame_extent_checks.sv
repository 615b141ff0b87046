// Bytes are numbered from the first of the frame: those below the length are needed, and the frame must have them.
//
// A frame is what the wire may bring: beats without gaps, all but the last full.
module frame_extent_checks #(
  parameter int Bytes = 4,
  parameter int Places = 2,
  parameter int Limit = 10,
  parameter int LengthWidth = 5,
  parameter int BeatWidth = 2
) (
  input logic                   clk_i,
  input logic                   rst_i,
  input logic                   take_i,
  input logic                   first_i,
  input logic                   last_i,
  input logic [Bytes-1:0]       keep_i,
  input logic [LengthWidth-1:0] length_i,
  input logic [BeatWidth-1:0]   beat_o,
  input logic [Bytes-1:0]       needed_o,
  input logic                   short_o,
  input logic                   long_o,
  input logic [LengthWidth-1:0] rest_i,
  input logic [BeatWidth-1:0]   next_i
);

  // Far beyond every length the position stays.
  localparam logic [LengthWidth+1:0] Far = (LengthWidth + 2)'(Bytes * ((1 << LengthWidth) / Bytes + 1));

  logic                   known_q = 1'b0;
  logic [LengthWidth+1:0] ordinal;
  logic [BeatWidth-1:0]   number;
  logic [LengthWidth+1:0] position, position_q, length, finish;
  logic [LengthWidth-1:0] length_q;
  logic                   proper;

  assign position = first_i ? '0 : position_q;
  assign length   = {2'd0, first_i ? length_i : length_q};

  // The end of the frame, if it ends here: behind the last byte that is kept.
  always_comb begin
    finish = position;
    for (int i = 0; i < Bytes; i++) if (keep_i[i]) finish = position + i[LengthWidth+1:0] + 1'b1;
    proper = keep_i[0] && (keep_i & (keep_i + 1'b1)) == '0;
  end

  always_ff @(posedge clk_i) begin
    known_q <= 1'b1;
    if (rst_i) begin
      position_q <= '0;
      length_q   <= '0;
    end else if (take_i) begin
      position_q <= position >= Far ? position : position + Bytes[LengthWidth+1:0];
      length_q   <= first_i ? length_i : length_q;
    end
  end

  // The number of the beat, up to the largest that its bits can say.
  assign ordinal = position_q >> Places;
  assign number  = ordinal < {{(LengthWidth + 2 - BeatWidth) {1'b0}}, {BeatWidth{1'b1}}} ? ordinal[BeatWidth-1:0] : '1;

  logic [Bytes-1:0] below;
  for (genvar i = 0; i < Bytes; i++) begin : gen_bytes
    assign below[i] = position + i < length;
  end

  always_comb begin
    if (known_q) begin
      needs: assert (needed_o == below);
      counts: assert (beat_o == (first_i ? '0 : next_i));
      follows: assert (next_i == number);
      places: assert (position_q % Bytes == 0 && position_q <= Far);
      rests: assert (rest_i == ({2'd0, length_q} > position_q ? {2'd0, length_q} - position_q : '0));
      if (proper && last_i) cuts: assert (short_o == (finish < length));
      if (!last_i) waits: assert (!short_o);
      if (proper && last_i) limits: assert (long_o == (finish > Limit));
    end
  end

endmodule

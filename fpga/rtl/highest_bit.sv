// The place of the highest set bit; 0 when none is set.
module highest_bit #(
  parameter int Width = 16,
  parameter int PlaceWidth = 4
) (
  input  logic [Width-1:0]      word_i,
  output logic [PlaceWidth-1:0] place_o
);

  logic [PlaceWidth-1:0] place[Width];

  assign place[0] = '0;
  for (genvar i = 1; i < Width; i++) begin : gen_bits
    assign place[i] = word_i[i] ? i[PlaceWidth-1:0] : place[i-1];
  end
  assign place_o = place[Width-1];

  logic unused;
  assign unused = word_i[0];

endmodule

// The place of the highest set bit; 0 when none is set.
module highest_bit #(
  parameter int Width = 16,
  parameter int PlaceWidth = 4
) (
  input  logic [Width-1:0]      word_i,
  output logic [PlaceWidth-1:0] place_o
);

  // Element i is the place among the bits below i.
  logic [PlaceWidth-1:0] place[Width + 1];

  assign place[0] = '0;
  for (genvar i = 0; i < Width; i++) begin : gen_bits
    assign place[i+1] = word_i[i] ? i[PlaceWidth-1:0] : place[i];
  end
  assign place_o = place[Width];

endmodule

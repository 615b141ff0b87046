// A result as the activation of the next layer: negative ones become 0 (ReLU), and the bit `highest_i` becomes bit 7.
//
// With highest_i the highest set bit of the largest result nothing is lost above.
module normalised_activation #(
  parameter int Width = 16,
  parameter int PlaceWidth = 4
) (
  input  logic [Width-1:0]      result_i,
  input  logic [PlaceWidth-1:0] highest_i,
  output logic [7:0]            activation_o
);

  logic [Width+6:0] raised;
  logic [7:0]       shifted;

  assign raised       = {result_i, 7'd0};
  assign shifted      = 8'(raised >> highest_i);
  assign activation_o = result_i[Width-1] ? 8'd0 : shifted;

endmodule

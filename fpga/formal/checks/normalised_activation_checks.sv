// A result that is not negative, times 2**7 over 2**highest; negative ones become 0.
module normalised_activation_checks #(
  parameter int Width = 16,
  parameter int PlaceWidth = 4
) (
  input logic                  clk_i,
  input logic                  rst_i,
  input logic [Width-1:0]      result_i,
  input logic [PlaceWidth-1:0] highest_i,
  input logic [7:0]            activation_o
);

  // Written as the published text has it: left below bit 7, right above it.
  logic [Width-1:0] moved;
  assign moved = highest_i <= PlaceWidth'(7)
    ? result_i << (PlaceWidth'(7) - highest_i)
    : result_i >> (highest_i - PlaceWidth'(7));

  always_comb begin
    if (result_i[Width-1]) rectifies: assert (activation_o == '0);
    if (!result_i[Width-1]) shifts: assert (activation_o == moved[7:0]);
  end

  logic unused;
  assign unused = ^{clk_i, rst_i, moved[Width-1:8]};

endmodule

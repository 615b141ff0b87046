// A number that is kept from one fire to the next (R18).
module count_action_store #(
  parameter int Width = 1
) (
  input  logic             clk_i,
  input  logic             rst_i,
  input  logic             fire_i,
  input  logic [Width-1:0] data_i,
  output logic [Width-1:0] number_o
);

  logic [Width-1:0] number_q;

  always_ff @(posedge clk_i) begin
    if (rst_i) number_q <= '0;
    else if (fire_i) number_q <= data_i;
  end

  assign number_o = number_q;

endmodule

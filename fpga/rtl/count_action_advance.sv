// A number that goes up by one at each fire, and from Last to 0.
module count_action_advance #(
  parameter int Width = 1,
  parameter bit [Width-1:0] Last = '1
) (
  input  logic             clk_i,
  input  logic             rst_i,
  input  logic             advance_i,
  output logic [Width-1:0] number_o
);

  logic [Width-1:0] number_q;

  always_ff @(posedge clk_i) begin
    if (rst_i) number_q <= '0;
    else if (advance_i) number_q <= number_q == Last ? '0 : number_q + {{(Width - 1) {1'b0}}, 1'b1};
  end

  assign number_o = number_q;

endmodule

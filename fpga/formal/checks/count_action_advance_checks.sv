// A number goes up by one at each fire, from Last to 0, and moves at no other time (R6).
module count_action_advance_checks #(
  parameter int Width = 1,
  parameter bit [Width-1:0] Last = '1
) (
  input logic             clk_i,
  input logic             rst_i,
  input logic             advance_i,
  input logic [Width-1:0] number_o
);

  logic             known_q = 1'b0;
  logic             reset_q, advance_q;
  logic [Width-1:0] number_q;

  always_ff @(posedge clk_i) begin
    known_q   <= 1'b1;
    reset_q   <= rst_i;
    advance_q <= advance_i;
    number_q  <= number_o;
  end

  always_comb begin
    if (known_q && reset_q) resets: assert (number_o == '0);
    if (known_q) stays_below: assert (number_o <= Last);
    if (known_q && !reset_q && advance_q && number_q == Last) wraps: assert (number_o == '0);
    if (known_q && !reset_q && advance_q && number_q < Last) advances: assert (number_o == number_q + 1'b1);
    if (known_q && !reset_q && !advance_q) holds: assert (number_o == number_q);
  end

endmodule

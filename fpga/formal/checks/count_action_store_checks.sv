// A number is what was stored at the last fire, and changes at no other time (R6, R18).
module count_action_store_checks #(
  parameter int Width = 1
) (
  input logic             clk_i,
  input logic             rst_i,
  input logic             fire_i,
  input logic [Width-1:0] data_i,
  input logic [Width-1:0] number_o
);

  logic             known_q = 1'b0;
  logic             reset_q, fire_q;
  logic [Width-1:0] data_q, number_q;

  always_ff @(posedge clk_i) begin
    known_q  <= 1'b1;
    reset_q  <= rst_i;
    fire_q   <= fire_i;
    data_q   <= data_i;
    number_q <= number_o;
  end

  always_comb begin
    if (known_q && reset_q) resets: assert (number_o == '0);
    if (known_q && !reset_q && fire_q) stores: assert (number_o == data_q);
    if (known_q && !reset_q && !fire_q) holds: assert (number_o == number_q);
  end

endmodule

// A buffer gives its beats on in their order, keeps each until it is taken, and is ready while it has room (R20).
module count_action_buffer_checks #(
  parameter int Width = 16
) (
  input logic             clk_i,
  input logic             rst_i,
  input logic             valid_i,
  input logic [Width-1:0] data_i,
  input logic             ready_o,
  input logic             valid_o,
  input logic [Width-1:0] data_o,
  input logic             ready_i,
  input logic             full_i,
  input logic [Width-1:0] second_i
);

  logic             known_q = 1'b0;
  logic             reset_q, comes_q, taken_q, valid_q, full_q;
  logic [Width-1:0] sample_q, data_q, second_q;

  always_ff @(posedge clk_i) begin
    known_q  <= 1'b1;
    reset_q  <= rst_i;
    comes_q  <= valid_i && ready_o;
    taken_q  <= valid_o && ready_i;
    valid_q  <= valid_o;
    full_q   <= full_i;
    sample_q <= data_i;
    data_q   <= data_o;
    second_q <= second_i;
  end

  logic waits;
  assign waits = valid_q && !taken_q;
  always_comb begin
    if (known_q) accepts: assert (ready_o == !full_i && (valid_o || !full_i));
    if (known_q && reset_q) empties: assert (!valid_o && !full_i);
    if (known_q && !reset_q) holds: assert (valid_o == (waits || full_q || comes_q));
    if (known_q && !reset_q) fills: assert (full_i == (waits && (full_q || comes_q)));
    if (known_q && !reset_q && waits) keeps: assert (data_o == data_q);
    if (known_q && !reset_q && full_q && !waits) follows: assert (data_o == second_q);
    if (known_q && !reset_q && !full_q && !waits && comes_q) passes: assert (data_o == sample_q);
    if (known_q && !reset_q && !full_q && !waits && !comes_q) shows: assert (data_o == data_q);
    if (known_q && !reset_q && full_q && waits) orders: assert (second_i == second_q);
    if (known_q && !reset_q && comes_q && waits) stores: assert (second_i == sample_q);
  end

endmodule

// The maximum rises to a sample that is larger, or the first since a clear, and keeps the place of the first of equals.
//
// any_i is the register of the block that says whether there was a sample.
module running_maximum_checks #(
  parameter int Width = 4,
  parameter int IndexWidth = 4
) (
  input logic                  clk_i,
  input logic                  rst_i,
  input logic                  clear_i,
  input logic                  valid_i,
  input logic [Width-1:0]      sample_i,
  input logic [IndexWidth-1:0] index_i,
  input logic [Width-1:0]      largest_o,
  input logic [IndexWidth-1:0] index_o,
  input logic                  any_i
);

  logic                  known_q = 1'b0;
  logic                  restart_q, valid_q, any_q;
  logic [Width-1:0]      sample_q, largest_q;
  logic [IndexWidth-1:0] place_q, index_q;
  logic                  larger;

  // some_q: a sample has come since the last clear; any_q: it had, a cycle ago.
  logic some_q;

  always_ff @(posedge clk_i) begin
    known_q   <= 1'b1;
    restart_q <= rst_i || clear_i;
    valid_q   <= valid_i;
    sample_q  <= sample_i;
    place_q   <= index_i;
    largest_q <= largest_o;
    index_q   <= index_o;
    any_q     <= some_q;
    some_q    <= !(rst_i || clear_i) && (some_q || valid_i);
  end

  assign larger = valid_q && (!any_q || $signed(sample_q) > $signed(largest_q));

  always_comb begin
    if (known_q) remembers: assert (any_i == some_q);
    if (known_q && restart_q) restarts: assert (largest_o == '0 && index_o == '0);
    if (known_q && !restart_q && larger) rises: assert (largest_o == sample_q && index_o == place_q);
    if (known_q && !restart_q && !larger) keeps: assert (largest_o == largest_q && index_o == index_q);
  end

endmodule

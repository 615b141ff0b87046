// The largest signed sample since clear_i, and which one it was: the first of equals.
module running_maximum #(
  parameter int Width = 16,
  parameter int IndexWidth = 16
) (
  input  logic                  clk_i,
  input  logic                  rst_i,
  input  logic                  clear_i,
  input  logic                  valid_i,
  input  logic [Width-1:0]      sample_i,
  input  logic [IndexWidth-1:0] index_i,
  output logic [Width-1:0]      largest_o,
  output logic [IndexWidth-1:0] index_o
);

  logic [Width-1:0]      largest_q;
  logic [IndexWidth-1:0] index_q;
  logic                  any_q, larger;

  assign larger = !any_q || ($signed(sample_i) > $signed(largest_q));

  always_ff @(posedge clk_i) begin
    if (rst_i || clear_i) begin
      largest_q <= '0;
      index_q   <= '0;
      any_q     <= 1'b0;
    end else if (valid_i && larger) begin
      largest_q <= sample_i;
      index_q   <= index_i;
      any_q     <= 1'b1;
    end
  end

  assign largest_o = largest_q;
  assign index_o   = index_q;

endmodule

// Words that wait until their beat is back, first in, first out. What comes back without a word is not asked for.
//
// At most Depth words wait: as many cycles as light, converters and detector take together.
module beat_queue #(
  parameter int Width = 32,
  parameter int Depth = 64,
  parameter int PlaceWidth = 6
) (
  input  logic             clk_i,
  input  logic             rst_i,
  input  logic             clear_i,
  input  logic             push_i,
  input  logic [Width-1:0] word_i,
  input  logic             pop_i,
  output logic             valid_o,
  output logic [Width-1:0] word_o
);

  logic [Width-1:0]      words_q[Depth];
  logic [PlaceWidth-1:0] write_q, read_q;

  assign valid_o = write_q != read_q;
  assign word_o  = valid_o ? words_q[read_q] : '0;

  always_ff @(posedge clk_i) begin
    if (push_i) words_q[write_q] <= word_i;
  end

  always_ff @(posedge clk_i) begin
    if (rst_i || clear_i) begin
      write_q <= '0;
      read_q  <= '0;
    end else begin
      if (push_i) write_q <= write_q + 1'b1;
      if (pop_i && valid_o) read_q <= read_q + 1'b1;
    end
  end

endmodule

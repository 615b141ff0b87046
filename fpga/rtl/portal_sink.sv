// Beats of an output stream, kept until a driver has read them: a FIFO, oldest beat first.
//
// pop_i drops the oldest beat, and does nothing when there is none. data_o is 0 then.
module portal_sink #(
  parameter int Width = 16,
  parameter int Depth = 16,
  parameter int LevelWidth = 5
) (
  input  logic                  clk_i,
  input  logic                  rst_i,
  input  logic                  valid_i,
  input  logic [Width-1:0]      data_i,
  output logic                  ready_o,
  input  logic                  pop_i,
  output logic [Width-1:0]      data_o,
  output logic [LevelWidth-1:0] level_o
);

  // Depth is a power of two: addresses are levels without their upper bit, and wrap.
  logic [Width-1:0]      memory_q[Depth];
  logic [LevelWidth-2:0] write_q, read_q;
  logic [LevelWidth-1:0] level_q;
  logic                  push, pop;

  assign ready_o = !level_q[LevelWidth-1];
  assign push    = valid_i && ready_o;
  assign pop     = pop_i && (level_q != '0);

  always_ff @(posedge clk_i) begin
    if (push) memory_q[write_q] <= data_i;
  end

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      write_q <= '0;
      read_q  <= '0;
      level_q <= '0;
    end else begin
      if (push) write_q <= write_q + 1'b1;
      if (pop) read_q <= read_q + 1'b1;
      if (push && !pop) level_q <= level_q + 1'b1;
      else if (pop && !push) level_q <= level_q - 1'b1;
    end
  end

  assign data_o  = level_q == '0 ? '0 : memory_q[read_q];
  assign level_o = level_q;

endmodule

// Frames of a MAC that cannot wait, for a receiver that can: a frame comes out when all of it is here.
//
// A frame that finds no room, or that has more beats than the queue, is dropped whole; overrun_o is a pulse for each.
// The queue has Depth - 1 places, Depth = 2 ** PlaceWidth.
module frame_queue #(
  parameter int Width = 578,
  parameter int PlaceWidth = 9
) (
  input  logic             clk_i,
  input  logic             rst_i,
  input  logic             valid_i,
  input  logic             last_i,
  input  logic [Width-1:0] beat_i,
  output logic             overrun_o,
  output logic             valid_o,
  input  logic             ready_i,
  output logic [Width-1:0] beat_o
);

  logic [PlaceWidth-1:0] write_q, end_q, read_q, after, next;
  logic                  dropping_q, full, store, valid_q;

  // Beats from end_q to write_q belong to a frame whose end has not come.
  assign after     = write_q + 1'b1;
  assign full      = after == read_q;
  assign store     = valid_i && !dropping_q && !full;
  assign overrun_o = valid_i && last_i && (dropping_q || full);

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      write_q    <= '0;
      end_q      <= '0;
      dropping_q <= 1'b0;
    end else if (valid_i) begin
      if (store) begin
        write_q <= after;
        if (last_i) end_q <= after;
      end else begin
        write_q <= end_q;
      end
      dropping_q <= !store && !last_i;
    end
  end

  assign next = valid_q && ready_i ? read_q + 1'b1 : read_q;

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      read_q  <= '0;
      valid_q <= 1'b0;
    end else begin
      read_q  <= next;
      valid_q <= next != end_q;
    end
  end

  assign valid_o = valid_q;

  word_memory #(
    .Width(Width),
    .Depth(2 ** PlaceWidth),
    .AddressWidth(PlaceWidth)
  ) u_beats (
    .clk_i,
    .write_i(store),
    .write_address_i(write_q),
    .word_i(beat_i),
    .read_address_i(next),
    .word_o(beat_o)
  );

endmodule

// Frames come out whole and in order, soon after their last beat, and each that does not is counted as an overrun.
//
// The checks count beats and places by themselves. The data are followed at one place, which the prover chooses, so that
// what is asserted there holds for every place.
module frame_queue_checks #(
  parameter int Width = 2,
  parameter int PlaceWidth = 2
) (
  input logic                  clk_i,
  input logic                  rst_i,
  input logic                  valid_i,
  input logic                  last_i,
  input logic [Width-1:0]      beat_i,
  input logic                  overrun_o,
  input logic                  valid_o,
  input logic                  ready_i,
  input logic [Width-1:0]      beat_o,
  input logic [PlaceWidth-1:0] write_i,
  input logic [PlaceWidth-1:0] end_i,
  input logic [PlaceWidth-1:0] read_i,
  input logic                  dropping_i,
  input logic [PlaceWidth-1:0] watch_i,
  input logic [Width-1:0]      watched_i
);

  localparam logic [PlaceWidth-1:0] Places = '1;

  logic                  known_q = 1'b0;
  logic                  reset_q, drop_q, stored_q, prompt_q, room, keeps, takes;
  // Beats of whole frames, and of the frame whose end has not come; the place of the oldest beat.
  logic [PlaceWidth-1:0] whole_q, part_q, head_q, tail;
  logic [Width-1:0]      kept_q;

  assign room  = whole_q + part_q != Places;
  assign keeps = valid_i && !drop_q && room;
  assign takes = valid_o && ready_i;
  assign tail  = head_q + whole_q + part_q;

  always_ff @(posedge clk_i) begin
    known_q <= 1'b1;
    reset_q <= rst_i;
    if (rst_i) begin
      drop_q   <= 1'b0;
      whole_q  <= '0;
      part_q   <= '0;
      head_q   <= '0;
      prompt_q <= 1'b0;
    end else begin
      if (valid_i) drop_q <= !last_i && !keeps;
      if (valid_i) part_q <= keeps && !last_i ? part_q + 1'b1 : '0;
      whole_q  <= whole_q + (keeps && last_i ? part_q + 1'b1 : '0) - {{(PlaceWidth - 1) {1'b0}}, takes};
      head_q   <= head_q + {{(PlaceWidth - 1) {1'b0}}, takes};
      prompt_q <= whole_q != {{(PlaceWidth - 1) {1'b0}}, takes};
    end
  end

  // What the watched place has to hold.
  always_ff @(posedge clk_i) begin
    if (rst_i) stored_q <= 1'b0;
    else if (keeps && tail == watch_i) stored_q <= 1'b1;
    else if (takes && head_q == watch_i) stored_q <= 1'b0;
    if (keeps && tail == watch_i) kept_q <= beat_i;
  end

  always_comb begin
    if (known_q) begin
      overruns: assert (overrun_o == (valid_i && last_i && (drop_q || !room)));
      orders: assert (read_i == head_q && end_i == PlaceWidth'(head_q + whole_q) && write_i == tail);
      drops: assert (dropping_i == drop_q);
      fits: assert ({1'b0, whole_q} + {1'b0, part_q} <= {1'b0, Places});
      prompt: assert (valid_o == prompt_q);
      if (valid_o) wholes: assert (whole_q != '0);
      if (PlaceWidth'(watch_i - head_q) < whole_q + part_q) follows: assert (stored_q);
      if (stored_q) stores: assert (watched_i == kept_q);
      if (valid_o && head_q == watch_i) shows: assert (beat_o == kept_q);
    end
    if (known_q && reset_q) resets: assert (!valid_o && whole_q == '0);
  end

endmodule

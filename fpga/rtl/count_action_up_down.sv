// A count that goes up and down between 0 and a bound (R17).
//
// The net increment, up less down, decides whether it counts (R2). The value compared is the base plus the net
// increment, without loss. What would pass 0, the bound or the register stays there and sets saturated_o. A bound
// that falls below the count takes hold at the next increment.
module count_action_up_down #(
  parameter int Width = 16,
  parameter int IncrementWidth = 1,
  parameter int TargetWidth = 16,
  parameter int BoundWidth = 16,
  parameter bit AtLeast = 1'b0,
  parameter bit Carry = 1'b0
) (
  input  logic                      clk_i,
  input  logic                      rst_i,
  input  logic                      enable_i,
  input  logic                      stall_i,
  input  logic                      clear_i,
  input  logic                      clear_status_i,
  input  logic [IncrementWidth-1:0] up_i,
  input  logic [IncrementWidth-1:0] down_i,
  input  logic [TargetWidth-1:0]    target_i,
  input  logic [BoundWidth-1:0]     bound_i,
  output logic                      fire_o,
  output logic [Width-1:0]          count_o,
  output logic                      overshoot_o,
  output logic                      saturated_o
);

  localparam int Narrow = Width > IncrementWidth ? Width : IncrementWidth;
  localparam int Inputs = TargetWidth > BoundWidth ? TargetWidth : BoundWidth;
  // Wide enough for the sum without loss and its sign, for the target and for the bound.
  localparam int Wide = (Narrow > Inputs ? Narrow : Inputs) + 2;
  localparam logic [Wide-1:0] Largest = {{(Wide - Width) {1'b0}}, {Width{1'b1}}};
  localparam logic signed [Wide-1:0] Zero = '0;

  logic [Width-1:0]       count_q;
  logic                   overshoot_q, saturated_q;
  logic signed [Wide-1:0] value, target, rest, limit, held;
  logic [Wide-1:0]        bound;
  logic                   counts, overshoots, saturates;

  assign counts = enable_i && !stall_i && (up_i != down_i);
  assign value  = $signed({{(Wide - Width) {1'b0}}, count_q} + {{(Wide - IncrementWidth) {1'b0}}, up_i} -
                          {{(Wide - IncrementWidth) {1'b0}}, down_i});
  assign target = $signed({{(Wide - TargetWidth) {1'b0}}, target_i});
  assign bound  = {{(Wide - BoundWidth) {1'b0}}, bound_i};
  assign limit  = $signed(bound < Largest ? bound : Largest);

  assign fire_o     = counts && (target_i != '0) && (AtLeast ? value >= target : value == target);
  assign overshoots = counts && (target_i != '0) && (value > target) && !AtLeast;
  assign rest       = !fire_o ? value : Carry ? value - target : Zero;
  assign held       = rest[Wide-1] ? Zero : rest > limit ? limit : rest;
  assign saturates  = counts && (held != rest);

  always_ff @(posedge clk_i) begin
    if (rst_i || clear_i) count_q <= '0;
    else if (counts) count_q <= held[Width-1:0];
  end

  // Sticky: an event in the cycle of clear_status_i wins (R12).
  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      overshoot_q <= 1'b0;
      saturated_q <= 1'b0;
    end else begin
      overshoot_q <= overshoots || (overshoot_q && !clear_status_i);
      saturated_q <= saturates || (saturated_q && !clear_status_i);
    end
  end

  assign count_o     = count_q;
  assign overshoot_o = overshoot_q;
  assign saturated_o = saturated_q;

endmodule

// One accumulating count: when it reaches its target, it fires (R2).
//
// The value compared is the base plus the increment of this cycle (R1). AtLeast: a value above the target fires, too;
// Carry: what is above it stays in the count (R16). Rules: docs/reference/count-action.md.
module count_action #(
  parameter int Width = 16,
  parameter int IncrementWidth = 1,
  parameter int TargetWidth = 16,
  parameter bit AtLeast = 1'b0,
  parameter bit Carry = 1'b0
) (
  input  logic                      clk_i,
  input  logic                      rst_i,
  input  logic                      enable_i,
  input  logic                      stall_i,
  input  logic                      clear_i,
  input  logic                      clear_status_i,
  input  logic [IncrementWidth-1:0] increment_i,
  input  logic [TargetWidth-1:0]    target_i,
  output logic                      fire_o,
  output logic [Width-1:0]          count_o,
  output logic                      overshoot_o,
  output logic                      saturated_o
);

  // Wide enough for the sum without loss, and for the target (R10).
  localparam int SumWidth = (Width > IncrementWidth ? Width : IncrementWidth) + 1;
  localparam int ValueWidth = SumWidth > TargetWidth ? SumWidth : TargetWidth;

  logic [Width-1:0]      count_q, next;
  logic                  overshoot_q, saturated_q;
  logic                  counts, is_equal, is_above, is_full, overshoots, saturates;
  logic [ValueWidth-1:0] base, increment, target, wanted;

  assign counts = enable_i && !stall_i && (increment_i != '0);
  assign base   = {{(ValueWidth - Width) {1'b0}}, count_q};

  if (ValueWidth > TargetWidth) begin : gen_narrow_target
    assign target = {{(ValueWidth - TargetWidth) {1'b0}}, target_i};
  end else begin : gen_wide_target
    assign target = target_i;
  end

  // The sum is the target where every bit gets the carry that the target wants of the bit below: no carry ripples.
  assign wanted   = (base & increment) | ((base | increment) & ~target);
  assign is_equal = (base ^ increment ^ target) == (wanted << 1);

  // What follows is read in cycles alone in which the count counts.
  if (IncrementWidth == 1 && !AtLeast) begin : gen_steps
    assign increment = {{(ValueWidth - 1) {1'b0}}, 1'b1};
    assign is_above  = base >= target;
    assign is_full   = count_q == '1;
    assign next      = is_full ? count_q : count_q + {{(Width - 1) {1'b0}}, 1'b1};
  end else begin : gen_sums
    logic [ValueWidth-1:0] rest;
    logic [ValueWidth:0]   difference;

    assign increment  = {{(ValueWidth - IncrementWidth) {1'b0}}, increment_i};
    assign difference = {1'b0, base} + {1'b0, increment} - {1'b0, target};
    assign is_above   = !difference[ValueWidth] && !is_equal;
    assign rest       = Carry && fire_o ? difference[ValueWidth-1:0] : base + increment;
    assign is_full    = rest[ValueWidth-1:Width] != '0;
    assign next       = is_full ? '1 : rest[Width-1:0];
  end

  assign fire_o     = counts && (is_equal || (AtLeast && is_above && target_i != '0));
  assign overshoots = counts && !AtLeast && is_above && (target_i != '0);
  assign saturates  = counts && (Carry || !fire_o) && is_full;

  always_ff @(posedge clk_i) begin
    if (rst_i || clear_i || (fire_o && !Carry)) count_q <= '0;
    else if (counts) count_q <= next;
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

// One count: when it reaches its target, it fires.
//
// The value compared is the base plus the increment of this cycle (R1). The base of an accumulating
// count is a register; that of a level count is 0. AtLeast: a value above the target fires, too; Carry: what is above
// it stays in the count (R16). Rules: docs/reference/count-action.md.
module count_action #(
  parameter bit Accumulate = 1'b1,
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

  logic [Width-1:0]      base;
  logic [ValueWidth-1:0] increment, value, target;
  logic                  counts;

  assign counts    = enable_i && !stall_i && (increment_i != '0);
  assign increment = counts ? {{(ValueWidth - IncrementWidth) {1'b0}}, increment_i} : '0;
  assign value     = {{(ValueWidth - Width) {1'b0}}, base} + increment;
  assign fire_o    = counts && (AtLeast ? (target != '0) && (value >= target) : (value == target));
  assign count_o   = base;

  if (ValueWidth > TargetWidth) begin : gen_narrow_target
    assign target = {{(ValueWidth - TargetWidth) {1'b0}}, target_i};
  end else begin : gen_wide_target
    assign target = target_i;
  end

  if (Accumulate) begin : gen_accumulate
    localparam logic [ValueWidth-1:0] Largest = {{(ValueWidth - Width) {1'b0}}, {Width{1'b1}}};

    logic [Width-1:0] count_q;
    logic             overshoot_q, saturated_q;
    logic             overshoots, saturates;
    logic [ValueWidth-1:0] rest;

    assign overshoots = counts && (target != '0) && (value > target) && !(AtLeast && fire_o);
    assign rest       = Carry && fire_o ? value - target : value;
    assign saturates  = (Carry || !fire_o) && (rest > Largest);

    if (Carry) begin : gen_carry
      always_ff @(posedge clk_i) begin
        if (rst_i || clear_i) count_q <= '0;
        else count_q <= saturates ? '1 : rest[Width-1:0];
      end
    end else begin : gen_restart
      always_ff @(posedge clk_i) begin
        if (rst_i || clear_i || fire_o) count_q <= '0;
        else if (saturates) count_q <= '1;
        else count_q <= rest[Width-1:0];
      end
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

    assign base        = count_q;
    assign overshoot_o = overshoot_q;
    assign saturated_o = saturated_q;
  end else begin : gen_level
    // A level count keeps nothing: no base, no status.
    assign base        = '0;
    assign overshoot_o = 1'b0;
    assign saturated_o = 1'b0;

    logic unused;
    assign unused = ^{clk_i, rst_i, clear_i, clear_status_i};
  end

endmodule

// What a count between bounds does, written down a second time (R2, R4, R5, R10, R12, R17), in 64 bits with sign.
module count_action_up_down_checks #(
  parameter int Width = 16,
  parameter int IncrementWidth = 1,
  parameter int TargetWidth = 16,
  parameter int BoundWidth = 16,
  parameter bit AtLeast = 1'b0,
  parameter bit Carry = 1'b0
) (
  input logic                      clk_i,
  input logic                      rst_i,
  input logic                      enable_i,
  input logic                      stall_i,
  input logic                      clear_i,
  input logic                      clear_status_i,
  input logic [IncrementWidth-1:0] up_i,
  input logic [IncrementWidth-1:0] down_i,
  input logic [TargetWidth-1:0]    target_i,
  input logic [BoundWidth-1:0]     bound_i,
  input logic                      fire_o,
  input logic [Width-1:0]          count_o,
  input logic                      overshoot_o,
  input logic                      saturated_o
);

  localparam logic signed [63:0] Largest = {{(64 - Width) {1'b0}}, {Width{1'b1}}};

  logic signed [63:0] up, down, count, target, bound, net, value, goes_on, most, stays;
  logic               counts, reached, above, outside;

  assign up      = {{(64 - IncrementWidth) {1'b0}}, up_i};
  assign down    = {{(64 - IncrementWidth) {1'b0}}, down_i};
  assign count   = {{(64 - Width) {1'b0}}, count_o};
  assign target  = {{(64 - TargetWidth) {1'b0}}, target_i};
  assign bound   = {{(64 - BoundWidth) {1'b0}}, bound_i};
  assign net     = enable_i && !stall_i ? up - down : 64'sd0;
  assign value   = count + net;
  assign counts  = net != 64'sd0;
  assign reached = counts && target > 64'sd0 && (value == target || (AtLeast && value > target));
  assign above   = counts && target > 64'sd0 && value > target && !reached;
  assign goes_on = !reached ? value : Carry ? value - target : 64'sd0;
  assign most    = Largest < bound ? Largest : bound;
  assign outside = counts && (goes_on < 64'sd0 || goes_on > most);
  assign stays   = !counts ? count : goes_on < 64'sd0 ? 64'sd0 : goes_on > most ? most : goes_on;

  logic               known_q = 1'b0;
  logic               reset_q, clear_q, reached_q, overshoot_q, saturated_q;
  logic signed [63:0] stays_q;

  always_ff @(posedge clk_i) begin
    known_q     <= 1'b1;
    reset_q     <= rst_i;
    clear_q     <= clear_i;
    reached_q   <= reached;
    stays_q     <= stays;
    overshoot_q <= !rst_i && (above || (overshoot_o && !clear_status_i));
    saturated_q <= !rst_i && (outside || (saturated_o && !clear_status_i));
  end

  always_comb begin
    if (known_q) fires: assert (fire_o == reached);
    if (known_q && reset_q) resets: assert (count_o == '0);
    if (known_q && clear_q) clears: assert (count_o == '0);
    if (known_q && !reset_q && !clear_q && reached_q) goes_on_after: assert (count == stays_q);
    if (known_q && !reset_q && !clear_q && !reached_q) counts_on: assert (count == stays_q);
    if (known_q) overshoots: assert (overshoot_o == overshoot_q);
    if (known_q) saturates: assert (saturated_o == saturated_q);
    fire: cover (fire_o);
  end

endmodule

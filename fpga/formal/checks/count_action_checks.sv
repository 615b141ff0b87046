// What an accumulating count does, written down a second time (R1 to R5, R10, R12): arithmetic wide enough for anything.
module count_action_checks #(
  parameter int Width = 16,
  parameter int IncrementWidth = 1,
  parameter int TargetWidth = 16,
  parameter bit AtLeast = 1'b0,
  parameter bit Carry = 1'b0
) (
  input logic                      clk_i,
  input logic                      rst_i,
  input logic                      enable_i,
  input logic                      stall_i,
  input logic                      clear_i,
  input logic                      clear_status_i,
  input logic [IncrementWidth-1:0] increment_i,
  input logic [TargetWidth-1:0]    target_i,
  input logic                      fire_o,
  input logic [Width-1:0]          count_o,
  input logic                      overshoot_o,
  input logic                      saturated_o
);

  localparam int Wide = 64;
  localparam logic [Wide-1:0] Largest = {{(Wide - Width) {1'b0}}, {Width{1'b1}}};

  logic [Wide-1:0] increment, value, target, goes_on;
  logic            counts, reached, above, full;

  assign increment = {{(Wide - IncrementWidth) {1'b0}}, increment_i};
  assign target    = {{(Wide - TargetWidth) {1'b0}}, target_i};
  assign value     = {{(Wide - Width) {1'b0}}, count_o} + increment;
  assign counts    = enable_i && !stall_i && increment != '0;
  assign reached   = counts && target != '0 && (value == target || (AtLeast && value > target));
  assign above     = counts && value > target && target != '0 && !AtLeast;
  assign goes_on   = !counts ? value : !reached ? value : Carry ? value - target : '0;
  assign full      = counts && goes_on > Largest;

  // Increments that came in, and those that went out: at a fire, at a clear, or above the largest value.
  logic [Width-1:0] came_q, went_q;

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      came_q <= '0;
      went_q <= '0;
    end else begin
      if (counts) came_q <= came_q + increment[Width-1:0];
      if (clear_i) went_q <= went_q + (counts ? value[Width-1:0] : count_o);
      else if (full) went_q <= went_q + (value[Width-1:0] - Largest[Width-1:0]);
      else if (reached) went_q <= went_q + (value[Width-1:0] - goes_on[Width-1:0]);
    end
  end

  // What the cycle before says of this one.
  logic             known_q = 1'b0;
  logic             reset_q, reached_q, clear_q, overshoot_q, saturated_q;
  logic [Width-1:0] next_q;

  always_ff @(posedge clk_i) begin
    known_q     <= 1'b1;
    reset_q     <= rst_i;
    reached_q   <= reached;
    clear_q     <= clear_i;
    next_q      <= !counts ? count_o : (full ? '1 : goes_on[Width-1:0]);
    overshoot_q <= !rst_i && (above || (overshoot_o && !clear_status_i));
    saturated_q <= !rst_i && (full || (saturated_o && !clear_status_i));
  end

  always_comb begin
    if (known_q) fires: assert (fire_o == reached);
    if (known_q && reset_q) resets: assert (count_o == '0);
    if (known_q && reached_q && !Carry) restarts: assert (count_o == '0);
    if (Carry && known_q && !reset_q && reached_q && !clear_q) carries: assert (count_o == next_q);
    if (known_q && clear_q) clears: assert (count_o == '0);
    if (known_q && !reset_q && !reached_q && !clear_q) counts_on: assert (count_o == next_q);
    if (known_q) conserves: assert (count_o == came_q - went_q);
    if (known_q) overshoots: assert (overshoot_o == overshoot_q);
    if (known_q) saturates: assert (saturated_o == saturated_q);
    fire: cover (fire_o);
  end

endmodule

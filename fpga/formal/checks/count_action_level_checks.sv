// What a level count does, written down a second time (R1 to R3, R10, R16): arithmetic wide enough for anything.
module count_action_level_checks #(
  parameter int AddendWidth = 1,
  parameter int TargetWidth = 16,
  parameter bit AtLeast = 1'b0
) (
  input logic                   clk_i,
  input logic                   rst_i,
  input logic                   enable_i,
  input logic                   stall_i,
  input logic [AddendWidth-1:0] first_i,
  input logic [AddendWidth-1:0] second_i,
  input logic [TargetWidth-1:0] target_i,
  input logic                   fire_o,
  input logic                   status_i  // a bit of its count or of its status is 1
);

  localparam int Wide = 64;

  logic [Wide-1:0] increment, target;
  logic            counts, reached;

  assign increment = {{(Wide - AddendWidth) {1'b0}}, first_i} + {{(Wide - AddendWidth) {1'b0}}, second_i};
  assign target    = {{(Wide - TargetWidth) {1'b0}}, target_i};
  assign counts    = enable_i && !stall_i && increment != '0;
  assign reached   = counts && target != '0 && (increment == target || (AtLeast && increment > target));

  always_comb begin
    fires: assert (fire_o == reached);
    keeps_nothing: assert (!status_i);
    fire: cover (fire_o);
  end

  logic unused;
  assign unused = clk_i ^ rst_i;

endmodule

// One level count: it fires when its increment of this cycle is its target (R1, R2). It keeps nothing.
//
// The increment comes in two addends. AtLeast: an increment above the target fires, too (R16).
module count_action_level #(
  parameter int AddendWidth = 1,
  parameter int TargetWidth = 16,
  parameter bit AtLeast = 1'b0
) (
  input  logic                   enable_i,
  input  logic                   stall_i,
  input  logic [AddendWidth-1:0] first_i,
  input  logic [AddendWidth-1:0] second_i,
  input  logic [TargetWidth-1:0] target_i,
  output logic                   fire_o
);

  // Wide enough for the sum without loss, and for the target (R10).
  localparam int ValueWidth = AddendWidth < TargetWidth ? TargetWidth : AddendWidth + 1;

  logic [ValueWidth-1:0] first, second, target;
  logic                  is_reached;

  assign first  = {{(ValueWidth - AddendWidth) {1'b0}}, first_i};
  assign second = {{(ValueWidth - AddendWidth) {1'b0}}, second_i};

  if (ValueWidth > TargetWidth) begin : gen_narrow_target
    assign target = {{(ValueWidth - TargetWidth) {1'b0}}, target_i};
  end else begin : gen_wide_target
    assign target = target_i;
  end

  if (AtLeast) begin : gen_at_least
    assign is_reached = first + second >= target;
  end else begin : gen_exactly
    // The first addend is what the second leaves of the target. The second has fewer terms, so both are there at the
    // same time. The subtraction is written bit by bit: no carry chain is made of it.
    logic [ValueWidth-1:0] borrow;

    assign borrow[0] = 1'b0;
    for (genvar i = 1; i < ValueWidth; i++) begin : gen_borrows
      assign borrow[i] = (second[i-1] & ~target[i-1]) | (borrow[i-1] & (second[i-1] | ~target[i-1]));
    end
    assign is_reached = first == (target ^ second ^ borrow);
  end

  // A target of 0 is never reached (R3).
  assign fire_o = enable_i && !stall_i && is_reached && (target_i != '0);

endmodule

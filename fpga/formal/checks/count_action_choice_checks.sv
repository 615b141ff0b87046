// Of several streams one beat is taken: by priority the first that is there, by turns the first from the turn on; where
// packets are whole, the one that has begun goes on alone (R19).
module count_action_choice_checks #(
  parameter int Streams   = 2,
  parameter int TurnWidth = 1,
  parameter bit Turns     = 1'b0,
  parameter bit Whole     = 1'b0
) (
  input logic                 clk_i,
  input logic                 rst_i,
  input logic                 fire_i,
  input logic [Streams-1:0]   valid_i,
  input logic [Streams-1:0]   ready_i,
  input logic [Streams-1:0]   others_i,  // beats that other counts take (R26)
  input logic [Streams-1:0]   last_i,
  input logic [TurnWidth-1:0] turn_i,
  input logic                 open_i
);

  logic [31:0]        turn, chosen;
  logic [Streams-1:0] wanted;
  logic               ends;
  assign turn = {{(32 - TurnWidth){1'b0}}, turn_i};
  assign ends = !Whole || |(wanted & last_i);

  // The last of these that has a beat: those before the turn backwards, then those from the turn on backwards.
  always_comb begin
    chosen = Streams;
    for (int i = Streams - 1; i >= 0; i--) if (valid_i[i]) chosen = i;
    if (Turns) for (int i = Streams - 1; i >= 0; i--) if (valid_i[i] && i >= turn) chosen = i;
    if (Whole && open_i) chosen = turn;
  end
  always_comb for (int i = 0; i < Streams; i++) wanted[i] = chosen == i;

  logic        known_q = 1'b0;
  logic        reset_q, fire_q, ends_q, open_q;
  logic [31:0] chosen_q, turn_q;
  always_ff @(posedge clk_i) begin
    known_q  <= 1'b1;
    reset_q  <= rst_i;
    fire_q   <= fire_i;
    ends_q   <= ends;
    open_q   <= open_i;
    chosen_q <= chosen;
    turn_q   <= turn;
  end

  logic [31:0] following;
  assign following = chosen_q == Streams - 1 ? 0 : chosen_q + 1;
  always_comb begin
    if (known_q) below: assert (turn < Streams);
    if (known_q) one: assert ((valid_i & ready_i) == (valid_i & (fire_i ? wanted : others_i)));
    if (known_q && reset_q) resets: assert (turn == 0 && !open_i);
    if (known_q && !reset_q && !fire_q) holds: assert (turn == turn_q && open_i == open_q);
    if (known_q && !reset_q && fire_q && Turns) turns: assert (turn == (ends_q ? following : chosen_q));
    if (known_q && !reset_q && fire_q && Whole) opens: assert (open_i == !ends_q && (ends_q || turn == chosen_q));
  end

endmodule

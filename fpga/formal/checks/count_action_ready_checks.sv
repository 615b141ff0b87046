// Beats are accepted in the cycles in which everybody who takes their stream is ready for them, and in no other (R7).
module count_action_ready_checks #(
  parameter int Streams = 1
) (
  input logic [Streams-1:0] ready_o,
  input logic [Streams-1:0] expected_i
);

  always_comb begin
    ready: assert (ready_o == expected_i);
  end

endmodule

// A property that the text states holds in every cycle after the first reset (R21).
module count_action_claim_checks (
  input logic rst_i,
  input logic begun_i,
  input logic holds_i
);

  always_comb begin
    if (begun_i && !rst_i) holds: assert (holds_i);
    looked_at: cover (begun_i && !rst_i);
  end

endmodule

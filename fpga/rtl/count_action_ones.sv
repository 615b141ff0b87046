// How many bits are 1: the increment of a count over valid bits, flags and pulses.
module count_action_ones #(
  parameter int Bits = 2,
  parameter int Width = 2
) (
  input  logic [Bits-1:0]  bits_i,
  output logic [Width-1:0] ones_o
);

  always_comb begin
    ones_o = '0;
    for (int i = 0; i < Bits; i++) begin
      ones_o = ones_o + {{(Width - 1) {1'b0}}, bits_i[i]};
    end
  end

endmodule

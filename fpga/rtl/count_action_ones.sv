// How many bits are 1: the increment of a count over valid bits, flags and pulses (R1).
//
// Pairs are added, then pairs of these sums, and so on. The adders are written bit by bit: synthesis makes no carry
// chains of them, which take longer than look-up tables for so few bits.
module count_action_ones #(
  parameter int Bits = 2,
  parameter int Width = 2
) (
  input  logic [Bits-1:0]  bits_i,
  output logic [Width-1:0] ones_o
);

  // Sum n is of the sums 2 * n and 2 * n + 1; those from Leaves on are the bits.
  localparam int Leaves = 1 << $clog2(Bits);

  logic [Width-1:0] sums[2*Leaves];

  for (genvar i = 0; i < Leaves; i++) begin : gen_leaves
    if (i < Bits) begin : gen_bit
      assign sums[Leaves+i] = {{(Width - 1) {1'b0}}, bits_i[i]};
    end else begin : gen_none
      assign sums[Leaves+i] = '0;
    end
  end

  for (genvar n = 1; n < Leaves; n++) begin : gen_sums
    logic [Width-1:0] carry;

    assign carry[0] = 1'b0;
    for (genvar i = 1; i < Width; i++) begin : gen_carries
      assign carry[i] = (sums[2*n][i-1] & sums[2*n+1][i-1]) | (carry[i-1] & (sums[2*n][i-1] | sums[2*n+1][i-1]));
    end
    assign sums[n] = sums[2*n] ^ sums[2*n+1] ^ carry;
  end

  assign sums[0] = '0;
  assign ones_o  = sums[1];

endmodule

// How many bits are 1: the increment of a count over valid bits, flags and pulses (R1).
//
// The number of each group of at most six bits is looked up: so many inputs are one level of logic. Pairs of these
// numbers are added, then pairs of sums, and so on. The adders are written bit by bit: synthesis makes no carry chains
// of them, which take longer than look-up tables for so few bits.
module count_action_ones #(
  parameter int Bits = 2,
  parameter int Width = 2
) (
  input  logic [Bits-1:0]  bits_i,
  output logic [Width-1:0] ones_o
);

  // Sum n is of the sums 2 * n and 2 * n + 1; those from Leaves on are the groups.
  localparam int Groups = (Bits + 5) / 6;
  localparam int Leaves = 1 << $clog2(Groups);

  logic [Width-1:0] sums[2*Leaves];

  for (genvar i = 0; i < Leaves; i++) begin : gen_leaves
    if (i < Groups) begin : gen_group
      localparam int First = i * Bits / Groups;
      localparam int Size = (i + 1) * Bits / Groups - First;
      logic [Width-1:0] ones[1<<Size];

      assign ones[0] = '0;
      for (genvar n = 1; n < (1 << Size); n++) begin : gen_ones
        assign ones[n] = ones[n/2] + (n % 2 == 1 ? {{(Width - 1) {1'b0}}, 1'b1} : '0);
      end
      assign sums[Leaves+i] = ones[bits_i[First+:Size]];
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

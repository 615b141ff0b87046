// The ones' complement sum of words, as the checksums of IPv4, ICMP and UDP need it: three cycles, one sum a cycle.
//
// Word i is words_i[Width*i+:Width], its high byte first on the wire. The sum of words that are all 0 is 0; every other
// sum is 1 .. 0xFFFF, and 0xFFFF where the other numbers with this remainder have 0. Words is a multiple of 4, and at
// most 2 ** CarryBits.
module ones_complement_sum #(
  parameter int Words = 32,
  parameter int Width = 16,
  parameter int CarryBits = 6
) (
  input  logic                   clk_i,
  input  logic                   rst_i,
  input  logic [Words*Width-1:0] words_i,
  output logic [Width-1:0]       sum_o
);

  localparam int Groups = Words / 4;
  localparam int GroupBits = Width + 2;
  localparam int SumBits = Width + CarryBits;

  // First cycle: groups of four words. Second: all groups. Third: the carries are added at the low end.
  logic [SumBits-1:0] sums[Groups + 1];
  logic [SumBits-1:0] sum_q;
  logic [Width:0]     folded;
  logic [Width-1:0]   folded_q;

  for (genvar i = 0; i < Groups; i++) begin : gen_groups
    logic [4*Width-1:0]   words;
    logic [GroupBits-1:0] group_q;

    assign words = words_i[4*Width*i+:4*Width];

    always_ff @(posedge clk_i) begin
      if (rst_i) group_q <= '0;
      else begin
        group_q <= {2'd0, words[0+:Width]} + {2'd0, words[Width+:Width]}
                 + {2'd0, words[2*Width+:Width]} + {2'd0, words[3*Width+:Width]};
      end
    end
    assign sums[i+1] = sums[i] + {{(SumBits - GroupBits) {1'b0}}, group_q};
  end

  assign sums[0] = '0;
  assign folded  = {1'b0, sum_q[Width-1:0]} + {{(Width + 1 - CarryBits) {1'b0}}, sum_q[SumBits-1:Width]};

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      sum_q    <= '0;
      folded_q <= '0;
    end else begin
      sum_q    <= sums[Groups];
      folded_q <= folded[Width-1:0] + {{(Width - 1) {1'b0}}, folded[Width]};
    end
  end

  assign sum_o = folded_q;

endmodule

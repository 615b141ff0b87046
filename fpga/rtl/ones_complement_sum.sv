// The ones' complement sum of 16-bit words, as the checksums of IPv4, ICMP and UDP need it: three cycles, one sum a cycle.
//
// Word i is words_i[16*i+:16], its high byte first on the wire. The sum of words that are all 0 is 0; every other sum
// that is 0 modulo 65535 is 0xFFFF. Words is a multiple of 4 and at most 64.
module ones_complement_sum #(
  parameter int Words = 32
) (
  input  logic                clk_i,
  input  logic                rst_i,
  input  logic [Words*16-1:0] words_i,
  output logic [15:0]         sum_o
);

  localparam int Groups = Words / 4;

  // First cycle: groups of four words. Second: all groups. Third: the carries are added at the low end.
  logic [17:0] groups_q[Groups];
  logic [21:0] sums[Groups + 1];
  logic [21:0] sum_q;
  logic [16:0] folded;
  logic [15:0] folded_q;

  for (genvar i = 0; i < Groups; i++) begin : gen_groups
    always_ff @(posedge clk_i) begin
      if (rst_i) groups_q[i] <= '0;
      else begin
        groups_q[i] <= {2'd0, words_i[64*i+:16]} + {2'd0, words_i[64*i+16+:16]}
                     + {2'd0, words_i[64*i+32+:16]} + {2'd0, words_i[64*i+48+:16]};
      end
    end
    assign sums[i+1] = sums[i] + {4'd0, groups_q[i]};
  end

  assign sums[0] = '0;
  assign folded  = {1'b0, sum_q[15:0]} + {11'd0, sum_q[21:16]};

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      sum_q    <= '0;
      folded_q <= '0;
    end else begin
      sum_q    <= sums[Groups];
      folded_q <= folded[15:0] + {15'd0, folded[16]};
    end
  end

  assign sum_o = folded_q;

endmodule

// A memory of one writer and one reader; what is read comes a cycle after its address.
module word_memory #(
  parameter int Width = 144,
  parameter int Depth = 16,
  parameter int AddressWidth = 4
) (
  input  logic                    clk_i,
  input  logic                    write_i,
  input  logic [AddressWidth-1:0] write_address_i,
  input  logic [Width-1:0]        word_i,
  input  logic [AddressWidth-1:0] read_address_i,
  output logic [Width-1:0]        word_o
);

  logic [Width-1:0] words_q[Depth];
  logic [Width-1:0] word_q;

  always_ff @(posedge clk_i) begin
    if (write_i) words_q[write_address_i] <= word_i;
    word_q <= words_q[read_address_i];
  end

  assign word_o = word_q;

`ifdef FORMAL
  // A proof watches one word, at an address that the prover chooses.
  (* anyconst *) logic [AddressWidth-1:0] watch;
  logic [Width-1:0] watched;
  assign watched = words_q[watch];
`endif

endmodule

// A memory: one port stores or loads a word, or else reads the driver's word; the other port reads (R25).
//
// Reads see the words before the clock edge. `*_inside_i` is 0 for an address that the memory does not have: it reads 0,
// and writes nothing. Reset sets what was read to 0, and keeps the words. The registers that the ports read into have no
// reset themselves, so that tools infer block RAM.
module count_action_memory #(
  parameter int Words = 256,
  parameter int Width = 16,
  parameter int AddressWidth = 8
) (
  input  logic                    clk_i,
  input  logic                    rst_i,
  input  logic                    store_i,
  input  logic                    store_inside_i,
  input  logic [AddressWidth-1:0] store_address_i,
  input  logic [Width-1:0]        store_word_i,
  input  logic                    load_i,
  input  logic                    load_inside_i,
  input  logic [AddressWidth-1:0] load_address_i,
  input  logic [Width-1:0]        load_word_i,
  output logic [Width-1:0]        loaded_o,
  input  logic                    read_i,
  input  logic                    read_inside_i,
  input  logic [AddressWidth-1:0] read_address_i,
  output logic [Width-1:0]        number_o
);

  logic [Width-1:0]        words_q[Words];
  logic [Width-1:0]        loaded_q, number_q;
  logic                    loaded_known_q, number_known_q;
  logic                    stores, busy, allowed;
  logic [AddressWidth-1:0] address;
  logic [Width-1:0]        word;

`ifdef FORMAL
  // Setting many words takes a prover long. Proofs of large memories hold for any words at power-on.
  localparam int Zeros = Words > 256 ? 0 : Words;
`else
  localparam int Zeros = Words;
`endif

  // The words at power-on.
  initial begin
    for (int place = 0; place < Zeros; place++) words_q[place] = '0;
  end

  assign stores  = store_i && !load_i && !rst_i;
  assign busy    = load_i || stores;
  assign allowed = stores ? store_inside_i : load_inside_i;
  assign address = stores ? store_address_i : load_address_i;
  assign word    = stores ? store_word_i : load_word_i;

  // Not an always_ff, which may not share the words with an initial block.
  always @(posedge clk_i) begin
    if (busy) begin
      if (allowed) words_q[address] <= word;
    end else begin
      loaded_q <= words_q[address];
    end
  end

  always_ff @(posedge clk_i) begin
    if (read_i) number_q <= words_q[read_address_i];
  end

  always_ff @(posedge clk_i) begin
    if (rst_i) loaded_known_q <= 1'b0;
    else if (!busy) loaded_known_q <= allowed;
    if (rst_i) number_known_q <= 1'b0;
    else if (read_i) number_known_q <= read_inside_i;
  end

  assign loaded_o = loaded_known_q ? loaded_q : '0;
  assign number_o = number_known_q ? number_q : '0;

`ifdef FORMAL
  // A proof watches one word, at an address that the prover chooses.
  (* anyconst *) logic [AddressWidth-1:0] watch;
  logic [Width-1:0] watched;
  assign watched = words_q[watch];
`endif

endmodule

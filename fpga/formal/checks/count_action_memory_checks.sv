// The words of a memory change by loads and stores alone, and a read gets the word before the clock edge (R25).
//
// The assertions are about one word, at the address `watch_i`. The prover chooses it, so they hold for every word.
module count_action_memory_checks #(
  parameter int Words = 256,
  parameter int Width = 16,
  parameter int AddressWidth = 8
) (
  input logic                    clk_i,
  input logic                    rst_i,
  input logic                    store_i,
  input logic                    store_inside_i,
  input logic [AddressWidth-1:0] store_address_i,
  input logic [Width-1:0]        store_word_i,
  input logic                    load_i,
  input logic                    load_inside_i,
  input logic [AddressWidth-1:0] load_address_i,
  input logic [Width-1:0]        load_word_i,
  input logic [Width-1:0]        loaded_o,
  input logic                    read_i,
  input logic                    read_inside_i,
  input logic [AddressWidth-1:0] read_address_i,
  input logic [Width-1:0]        number_o,
  input logic [AddressWidth-1:0] watch_i,
  input logic [Width-1:0]        watched_i
);

  logic                    known_q = 1'b0;
  logic                    reset_q, store_q, load_q, read_q, exists;
  logic                    store_inside_q, load_inside_q, read_inside_q;
  logic [AddressWidth-1:0] store_address_q, load_address_q, read_address_q;
  logic [Width-1:0]        store_word_q, load_word_q, loaded_q, number_q, watched_q;
  logic                    store_here, load_here, read_here;

  always_ff @(posedge clk_i) begin
    known_q         <= 1'b1;
    reset_q         <= rst_i;
    store_q         <= store_i && !rst_i;
    load_q          <= load_i;
    read_q          <= read_i;
    store_inside_q  <= store_inside_i;
    load_inside_q   <= load_inside_i;
    read_inside_q   <= read_inside_i;
    store_address_q <= store_address_i;
    load_address_q  <= load_address_i;
    read_address_q  <= read_address_i;
    store_word_q    <= store_word_i;
    load_word_q     <= load_word_i;
    loaded_q        <= loaded_o;
    number_q        <= number_o;
    watched_q       <= watched_i;
  end

  // The memory has a word at the watched address, and the access of the last cycle was to it.
  assign exists     = 64'(watch_i) < Words;
  assign store_here = store_inside_q && store_address_q == watch_i;
  assign load_here  = load_inside_q && load_address_q == watch_i;
  assign read_here  = read_inside_q && read_address_q == watch_i;

  always_comb begin
    if (known_q && exists) begin
      // Of a load and a store in one cycle, the load wins. A load acts in a cycle of reset, too.
      if (load_q && load_here) loads: assert (watched_i == load_word_q);
      if (!load_q && store_q && store_here) stores: assert (watched_i == store_word_q);
      if (!(load_q && load_here) && (load_q || !store_q || !store_here)) keeps: assert (watched_i == watched_q);
      if (!reset_q && read_q && read_here) reads: assert (number_o == watched_q);
      if (!reset_q && !load_q && !store_q && load_here) shows: assert (loaded_o == watched_q);
    end
    if (known_q && reset_q) resets: assert (number_o == '0 && loaded_o == '0);
    if (known_q && !reset_q && read_q && !read_inside_q) outside: assert (number_o == '0);
    if (known_q && !reset_q && !read_q) holds: assert (number_o == number_q);
    if (known_q && !reset_q && !load_q && !store_q && !load_inside_q) beyond: assert (loaded_o == '0);
    if (known_q && !reset_q && (load_q || store_q)) waits: assert (loaded_o == loaded_q);
    // Words are 0 at power-on; proofs of large memories do without this.
    if (!known_q && exists && Words <= 256) begins: assert (watched_i == '0);
  end

endmodule

// Loads of the words of a memory, one after the other: a driver writes an address, and then words. Each word is loaded
// at the address, which goes up by one.
module register_memory #(
  parameter int AddressWidth = 8,
  parameter int Width = 16
) (
  input  logic                    clk_i,
  input  logic                    rst_i,
  input  logic                    set_i,
  input  logic [AddressWidth-1:0] address_i,
  input  logic                    push_i,
  input  logic [Width-1:0]        word_i,
  output logic                    load_o,
  output logic [AddressWidth-1:0] address_o,
  output logic [Width-1:0]        word_o
);

  logic [AddressWidth-1:0] address_q;

  always_ff @(posedge clk_i) begin
    if (rst_i) address_q <= '0;
    else if (set_i) address_q <= address_i;
    else if (push_i) address_q <= address_q + 1'b1;
  end

  assign load_o    = push_i;
  assign address_o = address_q;
  assign word_o    = word_i;

endmodule

// Two images: one is read, a row of sixteen bytes at a time, while another packet writes the other, 64 bytes at a time.
//
// Every byte goes through the look-up table of its model on the way out. A row comes two cycles after its address.
module image_buffers (
  input  logic         clk_i,
  input  logic         write_i,
  input  logic         write_bank_i,
  input  logic [3:0]   write_word_i,
  input  logic [511:0] write_data_i,
  input  logic         look_up_write_i,
  input  logic [11:0]  look_up_address_i,
  input  logic [7:0]   look_up_data_i,
  input  logic         read_bank_i,
  input  logic [5:0]   read_row_i,
  input  logic [3:0]   model_i,
  output logic [127:0] row_o
);

  logic [511:0] word;
  logic [127:0] row;
  logic [1:0]   quarter_q;

  word_memory #(
    .Width(512),
    .Depth(32),
    .AddressWidth(5)
  ) u_images (
    .clk_i,
    .write_i,
    .write_address_i({write_bank_i, write_word_i}),
    .word_i(write_data_i),
    .read_address_i({read_bank_i, read_row_i[5:2]}),
    .word_o(word)
  );

  always_ff @(posedge clk_i) quarter_q <= read_row_i[1:0];

  assign row = word[{quarter_q, 7'd0}+:128];

  for (genvar i = 0; i < 16; i++) begin : gen_lanes
    word_memory #(
      .Width(8),
      .Depth(4096),
      .AddressWidth(12)
    ) u_look_up (
      .clk_i,
      .write_i(look_up_write_i),
      .write_address_i(look_up_address_i),
      .word_i(look_up_data_i),
      .read_address_i({model_i, row[i*8+:8]}),
      .word_o(row_o[i*8+:8])
    );
  end

endmodule

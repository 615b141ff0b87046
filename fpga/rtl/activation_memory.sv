// The results of a layer on their way to the next: written one by one, read a row of Lanes at a time.
//
// Results come in their order. The first of a row sets the others of its row to 0: the last row may stay incomplete.
// A whole row (an image) is written by row_write_i. A row that is read comes a cycle after its address.
module activation_memory #(
  parameter int Lanes = 16,
  parameter int Width = 16,
  parameter int LaneBits = 4,
  parameter int Rows = 64,
  parameter int RowBits = 6
) (
  input  logic                        clk_i,
  input  logic                        row_write_i,
  input  logic [RowBits-1:0]          row_i,
  input  logic [Lanes*Width-1:0]      row_data_i,
  input  logic                        result_write_i,
  input  logic [RowBits+LaneBits-1:0] result_index_i,
  input  logic [Width-1:0]            result_i,
  input  logic [RowBits-1:0]          read_row_i,
  output logic [Lanes*Width-1:0]      row_o
);

  logic [RowBits-1:0]  write_row;
  logic [LaneBits-1:0] lane;

  assign write_row = row_write_i ? row_i : result_index_i[LaneBits+:RowBits];
  assign lane      = result_index_i[LaneBits-1:0];

  for (genvar i = 0; i < Lanes; i++) begin : gen_lanes
    logic             mine, write;
    logic [Width-1:0] result;

    assign mine   = lane == i[LaneBits-1:0];
    assign write  = row_write_i || (result_write_i && (mine || lane == '0));
    assign result = mine ? result_i : '0;

    word_memory #(
      .Width(Width),
      .Depth(Rows),
      .AddressWidth(RowBits)
    ) u_lane (
      .clk_i,
      .write_i(write),
      .write_address_i(write_row),
      .word_i(row_write_i ? row_data_i[i*Width+:Width] : result),
      .read_address_i(read_row_i),
      .word_o(row_o[i*Width+:Width])
    );
  end

endmodule

// A place matches when, of the run of samples that begins there, the first half is at least the mean and the rest below.
module preamble_match_checks #(
  parameter int Lanes = 4,
  parameter int Width = 4,
  parameter bit Published = 1'b0
) (
  input logic                   clk_i,
  input logic                   rst_i,
  input logic [Lanes*Width-1:0] current_i,
  input logic [Lanes*Width-1:0] next_i,
  input logic [Lanes*Width-1:0] means_i,
  input logic [Lanes-1:0]       match_o
);

  logic [Lanes-1:0] expected;

  for (genvar k = 0; k < Lanes; k++) begin : gen_places
    logic [Width-1:0] mean, sample;
    logic             fits;

    // Sample i of the run; the published detector stays within the cycle, and has one mean.
    always_comb begin
      fits   = 1'b1;
      mean   = Published ? means_i[Width-1:0] : means_i[k*Width+:Width];
      sample = '0;
      for (int i = 0; i < Lanes; i++) begin
        if (k + i < Lanes) sample = current_i[(k+i)*Width+:Width];
        else if (Published) sample = current_i[(k+i-Lanes)*Width+:Width];
        else sample = next_i[(k+i-Lanes)*Width+:Width];
        if ((sample >= mean) != (i < Lanes / 2)) fits = 1'b0;
      end
    end
    assign expected[k] = fits;
  end

  always_comb begin
    places: assert (match_o == expected);
  end

  logic unused;
  assign unused = clk_i ^ rst_i;

endmodule

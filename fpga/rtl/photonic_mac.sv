// From converter samples to partial sums: realign, take the magnitudes, give them their signs, add the lanes.
//
// Signs and a keep bit per lane are pushed in each cycle that is sent, and wait here until its light is back. A cycle
// with beat_i 0 is a gap, from which no partial sum comes. A beat that comes in at cycle t leaves as partial_o at
// cycle t + 10.
module photonic_mac #(
  parameter bit Published = 1'b0,
  parameter int QueueDepth = 64,
  parameter int QueuePlaceWidth = 6
) (
  input  logic         clk_i,
  input  logic         rst_i,
  input  logic         restart_i,
  input  logic [7:0]   preamble_i,
  input  logic         sent_i,
  input  logic         beat_i,
  input  logic [15:0]  signs_i,
  input  logic [15:0]  keep_i,
  input  logic [255:0] samples_i,
  output logic         open_o,
  output logic         partial_valid_o,
  output logic [12:0]  partial_o
);

  localparam int Lanes = 16;
  localparam int Stages = 4;

  // Bits [14:7] of a sample are the light.
  // verilator lint_off UNUSEDSIGNAL
  logic [Lanes*16-1:0] samples;
  // verilator lint_on UNUSEDSIGNAL

  preamble_detector #(
    .Published(Published)
  ) u_detector (
    .clk_i,
    .rst_i,
    .restart_i,
    .length_i(preamble_i),
    .samples_i,
    .open_o,
    // verilator lint_off PINCONNECTEMPTY
    .place_o(),
    // verilator lint_on PINCONNECTEMPTY
    .samples_o(samples)
  );

  logic             waiting, beat;
  logic [Lanes-1:0] signs, keep;

  beat_queue #(
    .Width(2 * Lanes + 1),
    .Depth(QueueDepth),
    .PlaceWidth(QueuePlaceWidth)
  ) u_queue (
    .clk_i,
    .rst_i,
    .clear_i(restart_i),
    .push_i(sent_i),
    .word_i({beat_i, keep_i, signs_i}),
    .pop_i(open_o),
    .valid_o(waiting),
    .word_o({beat, keep, signs})
  );

  logic [Lanes*8-1:0] magnitudes;
  logic [Lanes*9-1:0] products;

  for (genvar i = 0; i < Lanes; i++) begin : gen_lanes
    assign magnitudes[i*8+:8] = samples[i*16+7+:8];
  end

  signed_products #(
    .Lanes(Lanes),
    .Width(8)
  ) u_products (
    .clk_i,
    .rst_i,
    .magnitudes_i(magnitudes),
    .signs_i(signs),
    .keep_i(keep),
    .products_o(products)
  );

  adder_tree #(
    .Stages(Stages),
    .Width(9)
  ) u_tree (
    .clk_i,
    .rst_i,
    .samples_i(products),
    .sum_o(partial_o)
  );

  // As long as signs and tree take.
  logic [Stages:0] valid_q;

  always_ff @(posedge clk_i) begin
    if (rst_i || restart_i) valid_q <= '0;
    else valid_q <= {valid_q[Stages-1:0], open_o && waiting && beat};
  end

  assign partial_valid_o = valid_q[Stages];

endmodule

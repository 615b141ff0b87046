// Finds where the received stream begins within a cycle, and hands it on from the first sample after the preamble.
//
// length_i is the preamble in cycles, taken over by restart_i. From Lanes/2 high and as many low samples per cycle, length_i
// times, the place is found whatever the idle level before it is (up to the level of the high samples). Data that
// come in at cycle t leave at cycle t + 5 (Lanes = 16), at every place: samples_o is then already the realigned stream.
// With Published it opens as the published detector does, which leaks a cycle or locks falsely.
// preamble_control is generated from library/preamble_control.ca.
module preamble_detector #(
  parameter bit Published = 1'b0
) (
  input  logic         clk_i,
  input  logic         rst_i,
  input  logic         restart_i,
  input  logic [7:0]   length_i,
  input  logic [255:0] samples_i,
  output logic         open_o,
  output logic [3:0]   place_o,
  output logic [255:0] samples_o
);

  localparam int Lanes = 16;
  localparam int Width = 16;

  logic [Lanes*Width-1:0] current, next, means;
  logic [Lanes-1:0] match, found;
  logic             locked;

  preamble_window #(
    .Lanes(Lanes),
    .Width(Width),
    .Stages(4)
  ) u_window (
    .clk_i,
    .rst_i,
    .samples_i,
    .current_o(current),
    .next_o(next),
    .means_o(means)
  );

  preamble_match #(
    .Lanes(Lanes),
    .Width(Width),
    .Published(Published)
  ) u_match (
    .current_i(current),
    .next_i(next),
    .means_i(means),
    .match_o(match)
  );

  // The published detector waits for one match less at the places after the first. When that is none, place 1 is
  // found at once: no count of the language does so, as a target of 0 is never reached (R3).
  logic [7:0] shifted;
  logic       at_once;

  assign shifted = Published && length_i != '0 ? length_i - 8'd1 : length_i;
  assign at_once = Published && length_i == 8'd1;

  preamble_control u_control (
    .clk_i,
    .rst_i,
    .match_i(match),
    .restart_i,
    .target_shadow_i({shifted, length_i, 16'd1}),
    .commit_i(restart_i),
    .clear_status_i(1'b0),
    .preamble_control_found_0_o(found[0]),
    .preamble_control_found_1_o(found[1]),
    .preamble_control_found_2_o(found[2]),
    .preamble_control_found_3_o(found[3]),
    .preamble_control_found_4_o(found[4]),
    .preamble_control_found_5_o(found[5]),
    .preamble_control_found_6_o(found[6]),
    .preamble_control_found_7_o(found[7]),
    .preamble_control_found_8_o(found[8]),
    .preamble_control_found_9_o(found[9]),
    .preamble_control_found_10_o(found[10]),
    .preamble_control_found_11_o(found[11]),
    .preamble_control_found_12_o(found[12]),
    .preamble_control_found_13_o(found[13]),
    .preamble_control_found_14_o(found[14]),
    .preamble_control_found_15_o(found[15]),
    .preamble_control_locked_o(locked),
    // verilator lint_off PINCONNECTEMPTY
    .fire_o(),
    .count_o(),
    .overshoot_o(),
    .saturated_o()
    // verilator lint_on PINCONNECTEMPTY
  );

  // The lowest place that was found, should there be two.
  logic [3:0] place[Lanes + 1];

  assign place[Lanes] = 4'd0;
  for (genvar k = 0; k < Lanes; k++) begin : gen_place
    localparam int Downwards = Lanes - 1 - k;
    assign place[Downwards] = found[Downwards] ? Downwards[3:0] : place[Downwards+1];
  end

  // The published false lock goes by no counter: it is there until a counter says otherwise, which is too late.
  logic false_lock_q;

  always_ff @(posedge clk_i) begin
    if (rst_i) false_lock_q <= 1'b0;
    else if (restart_i) false_lock_q <= at_once;
  end

  logic [2*Lanes*Width-1:0] window;

  assign open_o    = locked || false_lock_q;
  assign place_o   = false_lock_q ? 4'd1 : place[0];
  assign window    = {next, current};
  assign samples_o = window[int'(place_o)*Width+:Lanes*Width];

endmodule

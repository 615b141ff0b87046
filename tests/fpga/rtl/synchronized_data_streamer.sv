// Datapath synchronized_data_streamer, digest 1759e279.
// Generated: change its count-action modules instead. Rules: docs/reference/count-action.md.
module synchronized_data_streamer (
  input  logic         clk_i,
  input  logic         rst_i,
  input  logic [15:0]  DAC_valid_i,
  input  logic [255:0] DAC_data_i,
  input  logic         synchronized_data_streamer_DAC_ready_i,
  input  logic [15:0]  target_shadow_i,
  input  logic         commit_i,
  // verilator lint_off UNUSEDSIGNAL
  (* maybe_unused *) input  logic         clear_status_i,
  // verilator lint_on UNUSEDSIGNAL
  output logic [15:0]  DAC_ready_o,
  output logic         synchronized_data_streamer_DAC_valid_o,
  output logic [255:0] synchronized_data_streamer_DAC_data_o,
  output logic         fire_o,
  output logic [15:0]  count_o,
  output logic         overshoot_o,
  output logic         saturated_o
);

  // Wires between modules.
  logic synchronized_data_streamer_stall;
  logic synchronized_data_streamer_count_fire;

  // Targets in force, lowest bits first; commit_i replaces all of them at one clock edge (R8):
  // synchronized_data_streamer.num_DACs
  logic [15:0] target;
  count_action_targets #(
    .Width(16),
    .Reset(16'd16)
  ) u_targets (
    .clk_i,
    .rst_i,
    .commit_i,
    .shadow_i(target_shadow_i),
    .target_o(target)
  );

  // A beat of DAC moves when valid and ready are 1 (R7).
  assign DAC_ready_o = {16{synchronized_data_streamer_count_fire}};

  // ---- Module synchronized_data_streamer (streamer.ca:1:1): module synchronized_data_streamer {
  logic synchronized_data_streamer_DAC_stalled;
  assign synchronized_data_streamer_stall = synchronized_data_streamer_DAC_stalled;

  // Level count count, target num_DACs (streamer.ca:2:14): counts:  { sum DAC[i].valid (i = 1 to num_DACs) }
  logic [3:0] synchronized_data_streamer_count_first;
  logic [3:0] synchronized_data_streamer_count_second;
  logic [3:0] synchronized_data_streamer_count_first_ones;
  count_action_ones #(
    .Bits(11),
    .Width(4)
  ) u_synchronized_data_streamer_count_first_ones (
    .bits_i(DAC_valid_i[10:0]),
    .ones_o(synchronized_data_streamer_count_first_ones)
  );
  assign synchronized_data_streamer_count_first = synchronized_data_streamer_count_first_ones;
  logic [3:0] synchronized_data_streamer_count_second_ones;
  count_action_ones #(
    .Bits(5),
    .Width(4)
  ) u_synchronized_data_streamer_count_second_ones (
    .bits_i(DAC_valid_i[15:11]),
    .ones_o(synchronized_data_streamer_count_second_ones)
  );
  assign synchronized_data_streamer_count_second = synchronized_data_streamer_count_second_ones;
  count_action_level #(
    .AddendWidth(4),
    .TargetWidth(16)
  ) u_synchronized_data_streamer_count_count (
    .enable_i(1'b1),
    .stall_i(synchronized_data_streamer_stall),
    .first_i(synchronized_data_streamer_count_first),
    .second_i(synchronized_data_streamer_count_second),
    .target_i(target),
    .fire_o(synchronized_data_streamer_count_fire)
  );

  // On count: stream DAC (streamer.ca:4:14): actions: { stream DAC[i].data (i = 1 to num_DACs) }
  count_action_beat #(
    .Width(256)
  ) u_synchronized_data_streamer_DAC_beat (
    .clk_i,
    .rst_i,
    .fire_i(synchronized_data_streamer_count_fire),
    .data_i(DAC_data_i),
    .ready_i(synchronized_data_streamer_DAC_ready_i),
    .valid_o(synchronized_data_streamer_DAC_valid_o),
    .data_o(synchronized_data_streamer_DAC_data_o),
    .stalled_o(synchronized_data_streamer_DAC_stalled)
  );

  // Status of the counts for drivers, the first count lowest. A level count keeps nothing (R1).
  assign fire_o = synchronized_data_streamer_count_fire;
  assign count_o = 16'd0;
  assign overshoot_o = 1'd0;
  assign saturated_o = 1'd0;

endmodule

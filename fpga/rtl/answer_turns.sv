// Whose frame is sent: an answer's or a reply's, in turns when both wait. Each that is taken gets one whole frame.
//
// From the choice to the first beat Prepare cycles pass, in which the checksums come. answer_o: the frame is an answer's.
// last_i: the beat that is offered is the last of its frame. The source is ready with that beat, and may then change.
module answer_turns #(
  parameter int Prepare = 3
) (
  input  logic clk_i,
  input  logic rst_i,
  input  logic answer_valid_i,
  output logic answer_ready_o,
  input  logic reply_valid_i,
  output logic reply_ready_o,
  output logic choose_o,
  output logic answer_o,
  output logic begin_o,
  output logic valid_o,
  output logic first_o,
  input  logic ready_i,
  input  logic last_i
);

  logic               idle_q, answer_q, sending_q, first_q;
  logic [Prepare-1:0] prepare_q;
  logic               done;

  assign choose_o = idle_q && (answer_valid_i || reply_valid_i);
  // In the cycle of the choice the new source, then the one that was chosen.
  assign answer_o = choose_o ? answer_valid_i && !(reply_valid_i && answer_q) : answer_q;
  assign begin_o  = prepare_q[Prepare-1];
  assign valid_o  = sending_q;
  assign first_o  = first_q;
  assign done     = sending_q && ready_i && last_i;

  assign answer_ready_o = done && answer_q;
  assign reply_ready_o  = done && !answer_q;

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      idle_q    <= 1'b1;
      answer_q  <= 1'b0;
      prepare_q <= '0;
      sending_q <= 1'b0;
      first_q   <= 1'b0;
    end else begin
      idle_q    <= (idle_q && !choose_o) || done;
      answer_q  <= answer_o;
      prepare_q <= {prepare_q[Prepare-2:0], choose_o};
      sending_q <= begin_o || (sending_q && !done);
      first_q   <= begin_o || (first_q && !ready_i);
    end
  end

endmodule

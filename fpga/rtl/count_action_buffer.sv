// Two beats between a port and the modules: ready_o comes from a register, and no cycle is lost (R20).
//
// data_o is the older beat while valid_o is 1, and stays what it was when none waits.
module count_action_buffer #(
  parameter int Width = 16
) (
  input  logic             clk_i,
  input  logic             rst_i,
  input  logic             valid_i,
  input  logic [Width-1:0] data_i,
  output logic             ready_o,
  output logic             valid_o,
  output logic [Width-1:0] data_o,
  input  logic             ready_i
);

  logic             valid_q, full_q, ready_q;
  logic [Width-1:0] first_q, second_q;
  logic             comes, waits;

  assign comes = valid_i && ready_q;
  assign waits = valid_q && !ready_i;

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      valid_q  <= 1'b0;
      full_q   <= 1'b0;
      ready_q  <= 1'b1;
      first_q  <= '0;
      second_q <= '0;
    end else begin
      valid_q <= waits || full_q || comes;
      full_q  <= waits && (full_q || comes);
      ready_q <= !(waits && (full_q || comes));
      if (full_q && !waits) first_q <= second_q;
      else if (comes && !waits) first_q <= data_i;
      if (comes && waits) second_q <= data_i;
    end
  end

  assign ready_o = ready_q;
  assign valid_o = valid_q;
  assign data_o  = first_q;

endmodule

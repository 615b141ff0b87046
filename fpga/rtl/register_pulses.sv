// How many pulses there were since reset, modulo 2**32.
module register_pulses (
  input  logic        clk_i,
  input  logic        rst_i,
  input  logic        pulse_i,
  output logic [31:0] pulses_o
);

  logic [31:0] pulses_q;

  always_ff @(posedge clk_i) begin
    if (rst_i) pulses_q <= '0;
    else if (pulse_i) pulses_q <= pulses_q + 1'b1;
  end

  assign pulses_o = pulses_q;

endmodule

// Weights leave delay_i cycles and shift_i samples after their activations, whose light has the longer way.
//
// As published, weights are delayed by whole cycles, and activations by 16 - shift_i samples. Beyond that activations
// take one cycle; weights take 2 + delay_i in all. Both are dark until the first ones come.
module modulator_delay #(
  parameter int Lanes = 16,
  parameter int MaxDelay = 15
) (
  input  logic                clk_i,
  input  logic                rst_i,
  input  logic [3:0]          delay_i,
  input  logic [3:0]          shift_i,
  input  logic [Lanes*16-1:0] activation_i,
  input  logic [Lanes*16-1:0] weight_i,
  output logic [Lanes*16-1:0] activation_o,
  output logic [Lanes*16-1:0] weight_o
);

  localparam int Bits = Lanes * 16;

  // Samples of this cycle above those of the last.
  logic [Bits-1:0]   earlier_q, activation_q;
  logic [2*Bits-1:0] window;

  assign window = {activation_i, earlier_q};

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      earlier_q    <= '0;
      activation_q <= '0;
    end else begin
      earlier_q    <= activation_i;
      activation_q <= window[{28'd0, shift_i}*16+:Bits];
    end
  end

  // Element d is the weights of d + 1 cycles ago. Without reset these are shift registers in look-up tables; known_q
  // says which have come since the reset.
  logic [Bits-1:0]   history[MaxDelay+1];
  logic [MaxDelay:0] known_q;
  logic [Bits-1:0]   weight_q;

  for (genvar d = 0; d <= MaxDelay; d++) begin : gen_delay
    logic [Bits-1:0] samples_q;

    if (d == 0) begin : gen_first
      always_ff @(posedge clk_i) samples_q <= weight_i;
    end else begin : gen_next
      always_ff @(posedge clk_i) samples_q <= history[d-1];
    end
    assign history[d] = samples_q;
  end

  always_ff @(posedge clk_i) begin
    known_q  <= rst_i ? '0 : {known_q[MaxDelay-1:0], 1'b1};
    weight_q <= rst_i || !known_q[delay_i] ? '0 : history[delay_i];
  end

  assign activation_o = activation_q;
  assign weight_o     = weight_q;

endmodule

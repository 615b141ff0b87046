// An output beat appears a cycle after its fire, stays until it is taken, and is neither lost nor doubled (R6, R7).
//
// That no fire comes while the beat waits is assumed of the block alone, and proven of every module.
module count_action_beat_checks #(
  parameter int Width = 16,
  parameter bit Alone = 1'b1
) (
  input logic             clk_i,
  input logic             rst_i,
  input logic             fire_i,
  input logic [Width-1:0] data_i,
  input logic             ready_i,
  input logic             valid_o,
  input logic [Width-1:0] data_o,
  input logic             stalled_o
);

  // Fires and beats taken since reset, modulo 16: they differ by the beat that waits.
  logic [3:0]       fires_q, taken_q;
  logic             known_q = 1'b0;
  logic             reset_q, fire_q, waits_q;
  logic [Width-1:0] sample_q, data_q;

  always_ff @(posedge clk_i) begin
    known_q  <= 1'b1;
    reset_q  <= rst_i;
    fire_q   <= fire_i;
    waits_q  <= valid_o && !ready_i;
    sample_q <= data_i;
    data_q   <= data_o;
    if (rst_i) begin
      fires_q <= '0;
      taken_q <= '0;
    end else begin
      if (fire_i) fires_q <= fires_q + 4'd1;
      if (valid_o && ready_i) taken_q <= taken_q + 4'd1;
    end
  end

  if (Alone) begin : gen_alone
    always_comb assume (!(fire_i && valid_o && !ready_i));
  end else begin : gen_within
    always_comb begin
      overwrites: assert (!(fire_i && valid_o && !ready_i));
    end
  end

  always_comb begin
    stalls: assert (stalled_o == (valid_o && !ready_i));
    if (known_q && reset_q) empties: assert (!valid_o && data_o == '0);
    if (known_q && !reset_q && waits_q) stays: assert (valid_o && data_o == data_q);
    if (known_q && !reset_q && !waits_q) appears: assert (valid_o == fire_q);
    if (known_q && !reset_q && fire_q) data: assert (data_o == sample_q);
    if (known_q && !reset_q && !fire_q) keeps: assert (data_o == data_q);
    if (known_q) conserves: assert (fires_q == taken_q + {3'd0, valid_o});
    stall: cover (known_q && waits_q && valid_o);
  end

endmodule
